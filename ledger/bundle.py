"""A task bundle z = (q, e, s0, v, H): request, environment, initial state, verifier and harness, each content-addressed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ledger.canonical import digest
from ledger.errors import BundleError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
PARTS = ("request", "world", "initial_state", "verifier", "harness")


@dataclass(frozen=True)
class BundleDraft:
    """What a proposer makes: a task for one world, not yet tied to a verifier or a harness.

    Attributes:
        name: readable and unique within its source, such as `multi_turn_base_0`.
        world: name of the world, a folder of `training/worlds`.
        request: `{"system": str | None, "turns": [[{"role": "user", "content": str}, ...], ...]}`; further keys belong to the world.
        initial_state: JSON from which the world resets.
        spec: what the verifier needs to know beyond the states, such as the constants of the rule; never shown to a policy.
        reference: `{"turns": [[{"name": str, "arguments": object}, ...], ...], "end_state": JSON | None}`; never shown to a policy.
        hint: text that may help a policy when a recipe asks for it; never shown otherwise.
        split: train, validation or test.
        provenance: `{"proposer": str, "seed": int | None, "source": ..., "licence": ...}`.
    """

    name: str
    world: str
    request: Mapping[str, Any]
    initial_state: Any
    spec: Mapping[str, Any] = field(default_factory=dict)
    reference: Mapping[str, Any] | None = None
    hint: str | None = None
    split: Split = "train"
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise BundleError(f"split {self.split!r} is none of {', '.join(SPLITS)}")
        turns = self.request.get("turns")
        if not isinstance(turns, list | tuple) or not turns:
            raise BundleError(f"bundle {self.name!r}: request.turns must be a non-empty list of turns, seen {turns!r}")


@dataclass(frozen=True)
class Bundle:
    """A draft sealed with its world, verifier and harness versions."""

    draft: BundleDraft
    world_id: str
    verifier_id: str
    harness_id: str

    @cached_property
    def part_digests(self) -> dict[str, str]:
        """Hex SHA-256 of each of the five parts."""
        return {
            "request": digest(dict(self.draft.request), allow_nul=True),
            "world": self.world_id,
            "initial_state": digest(self.draft.initial_state, allow_nul=True),
            "verifier": digest({"verifier_id": self.verifier_id, "spec": dict(self.draft.spec)}),
            "harness": self.harness_id,
        }

    @cached_property
    def bundle_id(self) -> str:
        """Hex SHA-256 over the five part digests."""
        return digest(self.part_digests)
