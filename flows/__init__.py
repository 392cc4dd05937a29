"""The flows: one iteration of self-play."""
