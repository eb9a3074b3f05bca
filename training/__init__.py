"""Training side: worlds, verifiers, rewards, and the rollouts that connect them."""
