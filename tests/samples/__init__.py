"""Records made up for tests: what several of them decide on, keep and show."""
