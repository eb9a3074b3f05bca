"""Pipelines: Dagster assets over the ledger, and the demo that runs them all."""

from pathlib import Path

SHIPPED = Path(__file__).resolve().parent / "experiments"
"""The experiment files that come with the package."""
