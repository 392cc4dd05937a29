"""Where problems come from: the bank that ships with the package, and problem files."""
