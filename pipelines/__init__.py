"""Pipelines: Dagster assets over the ledger, and the demo that runs them all."""
