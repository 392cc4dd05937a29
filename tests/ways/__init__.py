"""The ways in which iterations are run, against each other."""
