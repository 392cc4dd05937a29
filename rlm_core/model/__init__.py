"""What answers and learns: base model, adapter and policy on MLX."""
