"""The attribution benchmark: faults planted in rollouts and updates, the truth from fault-off twins, and how well attribution finds them."""
