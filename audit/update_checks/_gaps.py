"""Log-probabilities of trained tokens by engine and trainer, where both are recorded. Pure."""

from dataclasses import dataclass

import numpy as np

from audit.update_subject import UpdateSubject
from training.view import Floats

TRAINER = ("proximal", "new")
"""Columns that hold the trainer's log-probabilities, at the start of the update and in it."""


@dataclass(frozen=True, eq=False)
class Gaps:
    """Trained tokens at which both are known.

    Attributes:
        column: which trainer's column it is.
        engine_N, trainer_N: nats.
        rollouts: ids of the rollouts with the largest gap on average, largest first.
        unknown: trained tokens of rows with columns of which one is not known.
    """

    column: str
    engine_N: Floats
    trainer_N: Floats
    rollouts: tuple[str, ...]
    unknown: int

    @property
    def gap_N(self) -> Floats:
        """Trainer less engine, in nats."""
        return self.trainer_N - self.engine_N


def recorded_gaps(subject: UpdateSubject) -> Gaps | None:
    """Trainer against the captured log-probabilities of the engine; None where no trainer's column is recorded."""
    column = next((name for name in TRAINER if any(name in row.logprobs for row in subject.rows)), None)
    if column is None:
        return None
    engine, trainer, unknown = [np.zeros(0)], [np.zeros(0)], 0
    largest: dict[str, float] = {}
    for row in subject.rows:
        if row.row is None or not row.fits or column not in row.logprobs:
            continue
        a, b = row.row.logprob_T[row.row.mask_T].astype(np.float64), row.logprobs[column][row.row.mask_T].astype(np.float64)
        known = np.isfinite(a) & np.isfinite(b)
        unknown += int(np.sum(~known))
        engine.append(a[known])
        trainer.append(b[known])
        if known.any():
            largest[row.rollout_id] = max(largest.get(row.rollout_id, 0.0), float(np.mean(np.abs(b[known] - a[known]))))
    names = tuple(sorted(largest, key=lambda name: -largest[name]))
    return Gaps(column, np.concatenate(engine), np.concatenate(trainer), names, unknown)
