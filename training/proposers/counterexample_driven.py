"""Turns solutions that a verifier judged wrongly into tasks whose known candidates tell right and wrong apart."""

from dataclasses import replace
from random import Random
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.acting import SEED, act, calls_of, judged, with_reference
from training.proposing.arguments import Pools, pools
from training.proposing.drafting import base_drafts, drafted, generator, provenance
from training.proposing.lessons import Counterexample, edits, read_counterexample, transferred
from training.worlds import World


def counterexample_driven(context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None) -> Proposed:
    """Drafts with a candidate that must be rejected (or accepted) and that a verifier once accepted (or rejected).

    A counterexample is read as what it did otherwise than its task's reference, and the same is done to other tasks: calls dropped,
    repeated, made earlier or later, added, or with other values. A draft is kept only where acting shows that the candidate separates: a
    wrong one ends in another state than the reference, a right one in the same.

    Args:
        context: its drafts, with references, and its counterexamples: objects with draft (a name), verifier, accepted, correct and turns.
        n: how many.
        rng: the only source of randomness.
        ask: not used.
    Raises:
        ProposalError: there are no counterexamples, one is malformed or judged rightly, or its task is not among the drafts.
    Source: our own.
    """
    bases = base_drafts(context, "counterexample_driven")
    found = [read_counterexample(value) for value in context.counterexamples]
    if not found:
        raise ProposalError("counterexample_driven needs counterexamples; the context holds none")
    by_name = {draft.name: draft for draft in bases if draft.reference is not None}
    for example in found:
        if example.draft not in by_name:
            raise ProposalError(f"counterexample for draft {example.draft!r}; drafts with a reference: {sorted(by_name)}")

    def make(own: Random, seed: int) -> BundleDraft:
        example = own.choice(found)
        target = by_name[own.choice(sorted(by_name))]
        return _separating(context.world, (by_name[example.draft], target), example, own, seed)

    return drafted(n, generator(rng), make)


def _separating(world: World[Any], drafts: tuple[BundleDraft, BundleDraft], example: Counterexample, own: Random, seed: int) -> BundleDraft:
    source, target = drafts
    reference, solved = _calls(source), _calls(target)
    found = edits(reference, example.turns)
    if not found:
        raise ProposalError(f"no difference: the counterexample of draft {source.name!r} is its reference")
    known = (_values(world, source), _values(world, target))
    turns = example.turns if source is target else transferred(found, solved, known, rng=own)
    name = "_".join(["like", example.verifier, *dict.fromkeys(f"{edit.kind}_{edit.tool}" for edit in found)])
    equivalent, wrong = judged(world, target, act(world, target, solved), [(name, turns)])
    if not (equivalent if example.correct else wrong):
        raise ProposalError(f"does not separate: {name} on draft {target.name!r}")
    separates = {"verifier": example.verifier, "verdict": "passed" if example.accepted else "failed", "candidate": name}
    draft = replace(
        target, name=f"counterexample_driven_{world.name}_{seed}", reference=None,
        spec={**target.spec, "verifier": target.spec.get("verifier"), "separates": separates},
        provenance=provenance(
            "counterexample_driven", seed, target, wording=str(target.provenance.get("wording", target.name)), counterexample=source.name,
            family=[[edit.kind, edit.tool, [list(path) for path, _, _ in edit.paths]] for edit in found],
        ),
    )  # fmt: skip
    return with_reference(world, draft, solved, others=[(name, turns)])


def _calls(draft: BundleDraft) -> Any:
    return calls_of((draft.reference or {}).get("turns"))


def _values(world: World[Any], draft: BundleDraft) -> Pools:
    return pools(world.view(world.reset(draft, seed=SEED)))
