"""The attribution benchmark: faults planted in rollouts and updates, their truth by fault-off twins, how well attribution finds them."""
