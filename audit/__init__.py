"""Audits: what tells a failure of the task from one of the environment, the verifier, the harness or the training code."""
