"""What becomes of a proposal before it is a problem: what is asked of it, proved of it, made of it."""
