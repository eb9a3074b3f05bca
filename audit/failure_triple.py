"""The failure triple of NeMo Gym (mask_sample, failure_kind, failure_reason), made of an outcome and its attribution, and read back. Pure.

Source: NVIDIA-NeMo/Gym #2552, #2611, #2750: the three stand beside the reward and do not depend on it. A valid zero has none of them; a
result that is worse for a failure and still valid has a kind and no mask; what is no evidence about the policy has the mask.
"""

from dataclasses import dataclass

from audit.taxonomy import FAULTS
from ledger.outcome import JUDGED, OUTCOMES, Outcome

_BY_BOUNDARY: dict[str, Outcome] = {"environment": "env_failed", "verifier": "verifier_failed", "harness": "harness_failed"}


@dataclass(frozen=True)
class FailureTriple:
    """The three fields as NeMo Gym has them.

    Attributes:
        mask_sample: True: no evidence about the policy, so neither in the loss nor in a baseline.
        failure_kind: `<outcome>` or `<outcome>:<fault>`; None without a failure beside the reward.
        failure_reason: in words; None without any.
    """

    mask_sample: bool
    failure_kind: str | None = None
    failure_reason: str | None = None


@dataclass(frozen=True)
class ReadTriple:
    """What a triple says here; `unknown_kind` is a kind that this release does not know, which its reader counts."""

    outcome: Outcome
    fault: str | None
    reason: str | None
    unknown_kind: str | None = None


def triple_of(outcome: Outcome, *, fault: str | None = None, reason: str | None = None) -> FailureTriple:
    """The triple of a rollout.

    Args:
        fault: of its attribution, from `audit.taxonomy`.
        reason: of its attribution, or of its end.
    """
    if outcome in ("succeeded", "task_failed"):
        return FailureTriple(False, None if fault is None else f"{outcome}:{fault}", reason)
    return FailureTriple(outcome not in JUDGED, outcome if fault is None else f"{outcome}:{fault}", reason)


def read_triple(triple: FailureTriple, *, passed: bool | None) -> ReadTriple:
    """The outcome and fault that a triple says.

    Args:
        passed: what the verdict beside it says; a reward is none.
    """
    if triple.failure_kind is None:
        plain: Outcome = "unknown" if triple.mask_sample or passed is None else "succeeded" if passed else "task_failed"
        return ReadTriple(plain, None, triple.failure_reason)
    name, _, fault = triple.failure_kind.partition(":")
    if name in OUTCOMES and (not fault or fault in FAULTS):
        return ReadTriple(name, fault or None, triple.failure_reason)
    if triple.failure_kind in FAULTS:
        outcome = _BY_BOUNDARY.get(FAULTS[triple.failure_kind], "task_failed" if passed is False else "unknown")
        return ReadTriple(outcome, triple.failure_kind, triple.failure_reason)
    valid = not triple.mask_sample and passed is not None
    return ReadTriple(("succeeded" if passed else "task_failed") if valid else "unknown", None, triple.failure_reason, triple.failure_kind)
