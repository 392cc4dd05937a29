"""The flows: one iteration, iterations in sequence, and exams."""
