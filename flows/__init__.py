"""The flows: an iteration of self-play, iterations one after another, an exam."""
