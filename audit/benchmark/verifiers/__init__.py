"""Verifiers that are wrong on purpose for chosen tasks. One file a verifier."""

from ledger.methods import Family
from training.verifiers import Judge

planted_verifiers: Family[Judge] = Family("audit.benchmark.verifiers")
