"""From judged rollouts to a candidate: batches, methods, optimizer steps."""
