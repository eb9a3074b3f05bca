"""Interleaved rounds and the tables they print."""

import os
import statistics
from collections.abc import Callable, Mapping

Arm = Callable[[], float]
"""Runs once and gives a rate, larger is better."""


def rounds() -> int:
    """How often each arm runs."""
    return int(os.environ.get("TALLY_BENCH_ROUNDS", "5"))


def interleaved(arms: Mapping[str, Arm], number: int | None = None) -> dict[str, list[float]]:
    """Name to rates, every arm once a round, so that a slow minute of the machine meets all of them."""
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds() if number is None else number):
        for name, arm in arms.items():
            rates[name].append(arm())
    return rates


def report(title: str, rates: Mapping[str, list[float]], control: str, unit: str) -> dict[str, float]:
    """Name to the median of its ratios to the control, paired by round; prints a table."""
    print(f"\n{title} ({unit}; median [min, max]; ratio to {control}, paired by round)")
    ratios: dict[str, float] = {}
    for name, values in rates.items():
        paired = [value / base for value, base in zip(values, rates[control], strict=True)]
        ratios[name] = statistics.median(paired)
        spread = f"{statistics.median(values):>12,.1f} [{min(values):,.1f}, {max(values):,.1f}]"
        print(f"  {name:<44} {spread:<42} {ratios[name]:.3f} [{min(paired):.3f}, {max(paired):.3f}]")
    return ratios
