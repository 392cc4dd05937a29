"""What makes MLX fast on a Linux CPU. Elsewhere MLX's own ways are taken."""
