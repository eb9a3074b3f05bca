"""What turns judged rollouts into batches, updates and model versions."""
