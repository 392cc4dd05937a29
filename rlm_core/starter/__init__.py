"""What `rlm init` writes."""
