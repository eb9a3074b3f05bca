"""What replays show of a rollout: where it left a healthy world, what its verifier says again, what its harness did to answers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

REPEATS = 3
"""How often a healthy world and a verifier are asked the same thing."""


@dataclass(frozen=True)
class Cause:
    """Something other than the policy that may have made a rollout fail.

    Attributes:
        fault: kind of fault, from `audit.taxonomy`.
        reason: in our own words, with the value seen and the value needed.
        evidence_event_ids: events that show it, in the order in which they happened.
        call: number of tool calls that were made before it; 0 for the reset.
        reproduced: in how many of `REPEATS` replays a healthy world does the same: all make it no fault, some leave it undecided.
        agreed: the replays agree with each other.
        recovered: the policy made up for it, and its state is as if it had not been.
        related: whether what is wrong in a healthy world as well concerns what was struck; None where nothing was compared.
    """

    fault: str
    reason: str
    evidence_event_ids: tuple[str, ...]
    call: int
    reproduced: int = 0
    agreed: bool = True
    recovered: bool = False
    related: bool | None = None

    @property
    def certain(self) -> bool:
        """Whether replays say that a healthy world never does this."""
        return self.reproduced == 0 and self.agreed


@dataclass(frozen=True)
class Replays:
    """All that was found out about one rollout by running its world and its verifier again.

    Attributes:
        unreplayable: why the world could not be replayed; empty where it was.
        causes: what the world or the harness did, by the call at which it happened.
        repaired: what the bundle's verifier says of the recorded actions in a healthy world, with calls put in that a parser dropped;
            None where nothing deviated, or nobody can say.
        doomed: the smallest number of tool calls after which not even the reference would have made up for what the policy had done;
            None when there is none, or it was not looked for.
        rejudged: what the bundle's verifier says of the recorded end, each time: `passed`, `failed` or `error`.
        unjudgeable: why it was not asked again; empty where it was.
        is_reference_end: whether the recorded end is, in all that the world calls material, the reference's; None where there is none.
        opinions: what the world's other verifiers say of the recorded end, by name, without the comparison with the reference.
    """

    unreplayable: str = ""
    causes: tuple[Cause, ...] = ()
    repaired: bool | None = None
    doomed: int | None = None
    rejudged: tuple[str, ...] = ()
    unjudgeable: str = ""
    is_reference_end: bool | None = None
    opinions: Mapping[str, bool | None] = field(default_factory=dict)
