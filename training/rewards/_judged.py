"""What the reward rules share: ends that say nothing about the policy. Pure."""

NO_EVIDENCE = ("world_error", "harness_error", "engine_error", "cancelled")
