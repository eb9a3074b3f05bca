"""Drafts by the number, with the reasons why some were dropped, and where each draft is from. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import ProposalError
from training.proposers import ProposalContext, Proposed

ATTEMPTS_A_DRAFT = 5


def drafted(n: int, rng: Random, make: Callable[[Random, int], BundleDraft]) -> Proposed:
    """Up to `n` different drafts and why others were dropped; each comes from a seed of its own, which `make` gets with its generator.

    Args:
        n: how many, 0 or more.
        rng: draws the seeds.
        make: a draft from a generator and its seed; a `ProposalError` drops it under the message's part before the first colon.
    Raises:
        ProposalError: `n` is negative.
    """
    if n < 0:
        raise ProposalError(f"n is {n}; allowed: 0 or more")
    made: dict[str, BundleDraft] = {}
    rejected: Counter[str] = Counter()
    for _ in range(ATTEMPTS_A_DRAFT * n):
        if len(made) == n:
            break
        seed = rng.getrandbits(31)
        try:
            draft = make(Random(seed), seed)
        except ProposalError as error:
            rejected[str(error).partition(":")[0]] += 1
            continue
        key = digest([dict(draft.request), draft.initial_state, dict(draft.spec)], allow_nul=True)
        if made.setdefault(key, draft) is not draft:
            rejected["the same as another"] += 1
    return Proposed(tuple(made.values()), dict(rejected))


def base_drafts(context: ProposalContext, proposer: str, *, least: int = 1) -> tuple[BundleDraft, ...]:
    """The context's drafts for its world, whose initial states a proposer starts from.

    Raises:
        ProposalError: there are fewer than `least`.
    """
    own = tuple(draft for draft in context.drafts if draft.world == context.world.name)
    if len(own) < least:
        worlds = sorted({draft.world for draft in context.drafts})
        raise ProposalError(
            f"{proposer} needs {least} or more drafts for world {context.world.name!r} to start from; seen {len(own)}"
            f" among {len(context.drafts)} drafts for {worlds}"
        )
    return own


def provenance(
    proposer: str, seed: int, base: BundleDraft | Sequence[BundleDraft], *, family: Any, wording: str, **source: Any
) -> dict[str, Any]:
    """Where a draft is from: proposer, seed, parents, licence, and the ids by which splits keep alike drafts together.

    Args:
        proposer: its name.
        seed: what its generator was seeded with.
        base: the drafts that it starts from.
        family: JSON that is the same for tasks which differ in names and numbers alone.
        wording: which wording, in the proposer's own terms.
        source: further facts.
    """
    parents = [base] if isinstance(base, BundleDraft) else list(base)
    licences = sorted({str(draft.provenance.get("licence")) for draft in parents})
    return {
        "proposer": proposer, "seed": seed, "source": {"drafts": [draft.name for draft in parents], **source},
        "licence": licences[0] if len(licences) == 1 else licences, "family": digest([proposer, family])[:12],
        "wording": f"{proposer}/{wording}",
        "names": names_of(parents[0]) if len(parents) == 1 else digest([names_of(draft) for draft in parents])[:12],
    }  # fmt: skip


def names_of(draft: BundleDraft) -> str:
    """The short id of the names that a draft draws on: its own, or one of its initial state."""
    return str(draft.provenance.get("names") or digest(draft.initial_state, allow_nul=True)[:12])


def generator(rng: Random | None) -> Random:
    """The generator that was given, or a fresh one from seed 0."""
    return Random(0) if rng is None else rng
