"""What proposers build on: acting calls out, legal arguments, tool graphs, wordings, milestones, and model calls that are recorded."""
