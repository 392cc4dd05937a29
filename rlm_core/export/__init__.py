"""Leaving: an adapter fused into its base becomes a model of its own, examined again and described."""
