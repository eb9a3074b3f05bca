"""Asks a model for tasks in a world that there is: request, solution and conditions, each checked by acting before it is used."""

from collections import Counter
from random import Random

from ledger.bundle import BundleDraft
from ledger.errors import ProposalError
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.answers import Conversation
from training.proposing.asked_tasks import TASK_FORM, AskedTask, Check, question
from training.proposing.drafting import base_drafts, generator


def asked(
    context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None, retries: int = 2, max_tokens: int = 2000
) -> Proposed:
    """Drafts that a model wrote, each acted out in the world; whatever does not hold is sent back with the reason, then dropped.

    A task is kept only where its calls are accepted and change something, its conditions hold at their end, and every wrong candidate ends
    elsewhere. Its verifier lets nothing change beside the conditions' places, so conditions that hold pin down the whole end.

    Args:
        context: its drafts give the initial states, its documents the topics.
        n: how many conversations, each for one task.
        rng: chooses the state and the document of each.
        ask: the recorded model client.
        retries: how often a model may answer again, 0 or more.
        max_tokens: of an answer.
    Raises:
        ProposalError: there is no model to ask, no draft to start from, or a parameter is out of range.
    Source: EnvScaler's ScenGenerator (arXiv 2601.05808) and WorkRover (arXiv 2610.18067); conditions by place are our own.
    """
    if ask is None:
        raise ProposalError("asked needs a model to ask; ask is None")
    if n < 0 or retries < 0:
        raise ProposalError(f"n is {n} and retries {retries}; allowed: 0 or more")
    bases, draws = base_drafts(context, "asked"), generator(rng)
    made: list[BundleDraft] = []
    rejected: Counter[str] = Counter()
    for _ in range(n):
        seed = draws.getrandbits(31)
        own = Random(seed)
        base = own.choice(bases)
        document = own.choice(context.documents) if context.documents else None
        thread = Conversation(ask, [{"role": "system", "content": TASK_FORM}], {"max_tokens": max_tokens}, retries)
        try:
            check = Check(context.world, base, document, ("asked", seed))
            made.append(thread.get(question(context.world, base, document), AskedTask, check))
        except ProposalError as error:
            thread.rejected[f"task, {str(error).partition(':')[0]}"] += 1
        rejected += thread.rejected
    return Proposed(tuple(made), dict(rejected))
