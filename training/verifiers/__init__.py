"""Verifiers: each judges one finished rollout, condition by condition, with evidence. One file a verifier."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ledger.bundle import BundleDraft
from ledger.methods import Family
from training.worlds import Observation, ToolCall

ConditionStatus = Literal["passed", "failed", "error"]


@dataclass(frozen=True)
class TraceStep:
    """One tool call of the rollout as it happened.

    Attributes:
        turn: 0-based user turn.
        call: the call; its arguments are empty when the sampled text could not be parsed.
        observation: what the world answered.
    """

    turn: int
    call: ToolCall
    observation: Observation


@dataclass(frozen=True)
class JudgeTask:
    """What a verifier knows of the task.

    Attributes:
        draft: the bundle's draft, with its spec and reference.
        material: maps a state view to the part on which end states are compared (the world's own).
    """

    draft: BundleDraft
    material: Callable[[Any], Any]


@dataclass(frozen=True)
class Condition:
    """One condition's result.

    Attributes:
        name: short and stable, such as `C1`.
        status: passed, failed, or error when it could not be decided. An error is never a number.
        evidence: JSON that lets a person check the status: rows, calls, differences.
        in_basis: whether success requires it.
    """

    name: str
    status: ConditionStatus
    evidence: Any = None
    in_basis: bool = True


@dataclass(frozen=True)
class Verdict:
    """A verifier's judgement.

    Attributes:
        conditions: one entry a condition, in the verifier's own order.
        side_effects: JSON objects naming changes outside what the task asked for.
        error: why the verification itself failed, or None.
    """

    conditions: tuple[Condition, ...]
    side_effects: tuple[Mapping[str, Any], ...] = field(default=())
    error: str | None = None

    @property
    def passed(self) -> bool | None:
        """True when every condition in the basis passed, False when one failed, None when the verifier could not decide."""
        basis = [condition.status for condition in self.conditions if condition.in_basis]
        if self.error is not None or not basis:
            return None
        if "failed" in basis:
            return False
        return None if "error" in basis else True


class Judge(Protocol):
    """The signature of every verifier."""

    def __call__(self, s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
        """The verdict on a rollout that went from view `s0` to view `s_end` by `trace`.

        Raises:
            VerifierFailed: the verifier broke; the caller records a verdict with an error.
        """
        ...


verifiers: Family[Judge] = Family("training.verifiers")
