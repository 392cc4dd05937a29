"""The `rlm` command."""
