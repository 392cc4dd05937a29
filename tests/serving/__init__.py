"""`rlm serve`, asked by clients: over HTTP, mostly within the tests' own process."""
