"""What a project keeps between iterations, and who may change it."""
