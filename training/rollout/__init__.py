"""Rollouts: capture at the model boundary, drive a policy through a world, collect, judge and reward."""
