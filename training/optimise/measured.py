"""What is measured and counted on the way to a gradient, as sums that add up over micro-batches and processes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measured:
    """What was measured and counted on the way to a gradient.

    Attributes:
        loss: Σ coefficient × Σ weight × loss, in units of the objectives.
        loss_of_terms: each term's part of it, by the term's name.
        metrics: what the objectives measured, by `<term>:<name>`: means over the tokens (or pairs) of the term, counts as sums, and
            what ends in `_max` as maxima.
        tokens: tokens with a weight in some term.
        rows: rows that went through the model.
        micro_batches: forward passes.
        padding: share of the places in the padded rows that held no token.
        entropy: mean over the weighted tokens, nats; None where not asked for.
        gap_mean, gap_max: |new - behaviour| over the weighted tokens that have a behaviour log-probability, nats.
        grad_norm: Euclidean norm of the gradients after this batch, before any clipping.
        counters: fallbacks and special cases; none of them silent.
    """

    loss: float
    loss_of_terms: Mapping[str, float]
    metrics: Mapping[str, float]
    tokens: int
    rows: int
    micro_batches: int
    padding: float
    entropy: float | None
    gap_mean: float
    gap_max: float
    grad_norm: float
    counters: Mapping[str, int] = field(default_factory=dict)

    def as_counters(self) -> dict[str, float]:
        """Everything in one flat mapping, as `UpdateApplied.counters` stores it."""
        flat: dict[str, float] = {
            "loss": self.loss, "tokens": self.tokens, "rows": self.rows, "micro_batches": self.micro_batches, "padding": self.padding,
            "gap_mean": self.gap_mean, "gap_max": self.gap_max, "grad_norm": self.grad_norm,
        }  # fmt: skip
        if self.entropy is not None:
            flat["entropy"] = self.entropy
        return flat | {f"loss:{name}": value for name, value in self.loss_of_terms.items()} | {**self.metrics, **self.counters}


def _zeros() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass
class Sums:
    """Running sums of what becomes `Measured`; those of several processes add up by `merge`."""

    loss: defaultdict[str, float] = field(default_factory=_zeros)
    sums: defaultdict[str, float] = field(default_factory=_zeros)
    over: defaultdict[str, float] = field(default_factory=_zeros)
    maxima: dict[str, float] = field(default_factory=dict)
    counts: defaultdict[str, float] = field(default_factory=_zeros)
    counters: defaultdict[str, float] = field(default_factory=_zeros)

    def merge(self, other: Sums) -> None:
        """Adds what another process summed."""
        for mine, theirs in (
            (self.loss, other.loss), (self.sums, other.sums), (self.over, other.over), (self.counts, other.counts),
            (self.counters, other.counters),
        ):  # fmt: skip
            for name, value in theirs.items():
                mine[name] += value
        for name, value in other.maxima.items():
            self.maxima[name] = max(value, self.maxima.get(name, value))

    def term(self, name: str, loss: float, metrics: Mapping[str, float]) -> None:
        """Adds a term's loss and measurements in one micro-batch."""
        self.loss[name] += loss
        over = metrics.get("pairs", metrics.get("tokens", 1.0))
        for metric, value in metrics.items():
            key = f"{name}:{metric}"
            if metric in ("tokens", "pairs"):
                self.counts[key] += value
            elif metric.endswith("_max"):
                self.maxima[key] = max(value, self.maxima.get(key, value))
            else:
                self.sums[key] += value * over
                self.over[key] += over

    def measured(self, grad_norm: float) -> Measured:
        """The sums as means, with the norm of the gradient that goes with them."""
        means = {name: value / self.over[name] if self.over[name] else 0.0 for name, value in self.sums.items()}
        counts = dict(self.counts)
        entropy = means.pop("entropy", None)
        gap_mean, maxima = means.pop("gap", 0.0), dict(self.maxima)
        places, whole = counts.pop("places", 0), counts.pop("whole_tokens", 0)
        return Measured(
            loss=float(sum(self.loss.values())),
            loss_of_terms=dict(self.loss),
            tokens=int(counts.pop("tokens", 0)),
            rows=int(counts.pop("rows", 0)),
            micro_batches=int(counts.pop("micro_batches", 0)),
            padding=1 - whole / places if places else 0.0,
            entropy=entropy,
            gap_mean=gap_mean,
            gap_max=maxima.pop("gap_max", 0.0),
            grad_norm=grad_norm,
            metrics={**means, **maxima, **counts},
            counters={name: int(value) for name, value in self.counters.items() if value},
        )
