"""Verdicts and the rewards derived from them."""

from typing import Literal

from pydantic import Field

from ledger.events.base import BlobRef, Digest, Edge, EventBody, Fields, Finite, Identifier, Name, ShortText


class ConditionResult(Fields):
    """One condition of a verdict."""

    name: Name
    status: Literal["passed", "failed", "error"]
    in_basis: bool
    evidence: BlobRef | None


class VerdictGiven(EventBody):
    """A verifier's judgement of one rollout.

    `status` is that of the verification itself. `role` says whether it is the bundle's own verifier, whose verdict can count,
    or a second opinion, which only shows agreement.
    """

    verdict_id: Identifier
    rollout_id: Identifier
    verifier_id: Digest
    verifier_kind: Literal["program", "state_diff", "judge", "human"]
    role: Literal["bundle", "second_opinion"]
    status: Literal["completed", "error"]
    error: BlobRef | None = None
    passed: bool | None
    conditions: list[ConditionResult]
    side_effects: BlobRef | None = None
    side_effect_count: int = Field(ge=0)
    state_end: Digest | None = None

    def stream(self) -> str:
        """`verdict-<id>`."""
        return f"verdict-{self.verdict_id}"

    def key(self) -> str:
        """One a verdict."""
        return "given"

    def edges(self) -> list[Edge]:
        """Verdict to the rollout and the verifier."""
        return [
            Edge(self.stream(), f"rollout-{self.rollout_id}", "judges"),
            Edge(self.stream(), f"verifier-{self.verifier_id}", "given_by"),
        ]


class RewardDerived(EventBody):
    """A reward, or null with the reason, derived from named verdicts by a named rule."""

    reward_id: Identifier
    rollout_id: Identifier
    rule: Name
    rule_id: Digest
    verdict_ids: list[Identifier]
    value: Finite | None
    reason: ShortText
    terms: dict[str, Finite | None] = Field(default_factory=dict)

    def stream(self) -> str:
        """`reward-<id>`."""
        return f"reward-{self.reward_id}"

    def key(self) -> str:
        """One a reward."""
        return "derived"

    def edges(self) -> list[Edge]:
        """Reward to its rollout and verdicts."""
        edges = [Edge(self.stream(), f"rollout-{self.rollout_id}", "rewards")]
        return edges + [Edge(self.stream(), f"verdict-{verdict}", "derived_from") for verdict in self.verdict_ids]
