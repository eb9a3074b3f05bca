"""A task bundle as its checks see it: the draft, the world, the verifiers, and what was tried on them, worked out once. Runs worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.bundle import Bundle
from training.verifiers import Judge
from training.worlds import World


@dataclass(frozen=True)
class BundleSubject:
    """What the checks of one bundle look at.

    Attributes:
        bundle: the sealed or sealable bundle.
        world: its world, open.
        judge: its own verifier.
        others: further verifiers by name.
        siblings: the other bundles of the same batch, for what can only be seen among many.
    """

    bundle: Bundle
    world: World[Any]
    judge: Judge
    others: Mapping[str, Judge]
    siblings: Sequence[Bundle]
