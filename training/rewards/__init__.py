"""Rewards: each derives one number a rollout from named verdicts, or none with the reason. One file a rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ledger.methods import Family


@dataclass(frozen=True)
class JudgedRollout:
    """What a reward rule sees of one rollout.

    Attributes:
        ended_by: how it ended.
        passed: the counting verdict: True, False, or None when there is none or the verifier broke.
        verdict_status: completed, error, or None when there is no verdict.
        conditions: condition name to True, False or None (could not be decided), of the basis only.
        checks: the same of the verdict's further checks, which success does not require.
    """

    ended_by: str
    passed: bool | None
    verdict_status: str | None
    conditions: Mapping[str, bool | None] = field(default_factory=dict)
    checks: Mapping[str, bool | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Scored:
    """Values along the rollout axis R.

    Attributes:
        value_R: the reward, or None where it is not valid.
        reason_R: why, in a few of our own words.
        terms: named parts of the value, each along R; None where a part is not valid.
    """

    value_R: tuple[float | None, ...]
    reason_R: tuple[str, ...]
    terms: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)


class Reward(Protocol):
    """The signature of every reward rule."""

    def __call__(self, view_R: Sequence[JudgedRollout]) -> Scored:
        """The reward of each rollout."""
        ...


rewards: Family[Reward] = Family("training.rewards")
