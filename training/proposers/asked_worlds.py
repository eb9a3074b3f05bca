"""Asks a model for whole worlds, as Python classes that run in the sandbox alone, and for tasks in them."""

from collections import Counter
from random import Random
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, ProposalError, WorldFailed
from training.proposers import AskModel, ProposalContext, Proposed
from training.proposing.answers import Conversation, excerpt
from training.proposing.asked_tasks import TASK_FORM, AskedTask, Check, question
from training.proposing.drafting import generator
from training.proposing.exploring import Explorer
from training.worlds.python_class import PythonClasses

WORLD_FORM = (
    "You write small worlds for tool-using agents as Python. A world is one class: its attributes are the whole state, all of it JSON, made"
    " in __init__(self, state=None); its public methods are the tools, with type annotations, a docstring each, and results that are JSON."
    " A call that cannot be done returns {'success': False, 'error': ...} and changes nothing. Some methods only read, some change the"
    " state. No files, no network, no clock, no randomness, standard library only. Answer with one JSON object and nothing else: name (a"
    " lower-case identifier), source (the Python text), state (attribute values to begin with, rich enough for several tasks)."
)
_EXCERPT = 3000
_MOVES = 3


class AskedWorld(BaseModel):
    """A world as a model answers it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{2,40}$")]
    source: Annotated[str, Field(min_length=50, max_length=60_000)]
    state: dict[str, Any]


def asked_worlds(
    context: ProposalContext, n: int, *, rng: Random | None = None, ask: AskModel | None = None, tasks: int = 2, retries: int = 2,
    max_tokens: int = 6000,
) -> Proposed:  # fmt: skip
    """Drafts of the world `python_class` in classes that a model wrote, with the sources as artifacts `class/<name>`.

    Each of `n` conversations is asked for a class and then for tasks in it. A class is kept where it runs in the sandbox, begins in the
    state that came with it, and has tools by which the state can be changed; a task where it holds when it is acted out. The drafts can be
    opened by `PythonClasses` over all the sources.

    Args:
        context: its documents give the topics; its world and drafts are not used.
        n: how many worlds to ask for.
        rng: chooses the document of each.
        ask: the recorded model client.
        tasks: how many tasks to ask for in each world, 1 or more.
        retries: how often each answer may be asked for again, 0 or more.
        max_tokens: of an answer.
    Raises:
        ProposalError: there is no model to ask, or a parameter is out of range.
        SandboxUnavailable: this machine has no sandbox for hostile code.
    Source: EnvScaler (arXiv 2601.05808), SkelBuilder and ScenGenerator.
    """
    if ask is None:
        raise ProposalError("asked_worlds needs a model to ask; ask is None")
    if n < 0 or tasks < 1 or retries < 0:
        raise ProposalError(f"n is {n}, tasks {tasks} and retries {retries}; allowed: 0 or more, 1 or more, and 0 or more")
    draws = generator(rng)
    made: list[BundleDraft] = []
    sources: dict[str, str] = {}
    rejected: Counter[str] = Counter()
    for _ in range(n):
        seed = draws.getrandbits(31)
        thread = Conversation(ask, [{"role": "system", "content": WORLD_FORM}], {"max_tokens": max_tokens}, retries)
        try:
            drafts, name, source = _world_with_tasks(context, thread, seed, tasks, taken=sources)
            made += drafts
            sources[name] = source
        except ProposalError as error:
            thread.rejected[f"world, {str(error).partition(':')[0]}"] += 1
        rejected += thread.rejected
    return Proposed(tuple(made), dict(rejected), {f"class/{name}": source for name, source in sources.items()})


def _world_with_tasks(
    context: ProposalContext, thread: Conversation, seed: int, tasks: int, *, taken: dict[str, str]
) -> tuple[list[BundleDraft], str, str]:
    own = Random(seed)
    document = own.choice(context.documents) if context.documents else None
    topic = "" if document is None else f"Topic, from {document.name}:\n{excerpt([document.text], _EXCERPT)}\n\n"

    def check(answer: AskedWorld) -> AskedWorld:
        if answer.name in taken:
            raise ProposalError(f"name taken: there is a world {answer.name!r} already")
        _runs(answer, Random(seed))
        return answer

    answer = thread.get(f"{topic}Write one world for this topic.", AskedWorld, check)
    base = _base(answer)
    drafts: list[BundleDraft] = []
    world = PythonClasses({answer.name: answer.source})
    try:
        for _ in range(tasks):
            task_check = Check(world, base, document, ("asked_worlds", own.getrandbits(31)))
            try:
                drafts.append(thread.get(f"{TASK_FORM}\n\n{question(world, base, document)}", AskedTask, task_check))
            except ProposalError as error:
                thread.rejected[f"task, {str(error).partition(':')[0]}"] += 1
    finally:
        world.close()
    if not drafts:
        raise ProposalError(f"no task: none of {tasks} held in world {answer.name!r}")
    return drafts, answer.name, answer.source


def _base(answer: AskedWorld) -> BundleDraft:
    """The state that came with a class, as a draft for tasks to start from."""
    request = {"system": "You act through tools. Say DONE at the end.", "turns": [[{"role": "user", "content": "-"}]]}
    return BundleDraft(answer.name, PythonClasses.name, request, {"class": answer.name, "state": answer.state})


def _runs(answer: AskedWorld, rng: Random) -> None:
    """Raises a ProposalError where a class does not run, does not begin in its state, or can never be changed."""
    try:
        world = PythonClasses({answer.name: answer.source})
    except BundleError as error:
        raise ProposalError(f"no Python: {error}") from error
    try:
        base = _base(answer)
        start = world.reset(base, seed=0)
        missing = sorted(key for key, value in answer.state.items() if world.view(start).get(key) != value)
        if missing:
            raise ProposalError(f"another state: the instance does not hold the given {', '.join(missing)}")
        explorer = Explorer(world, base, rng, tries=100)
        state = explorer.start
        for _ in range(_MOVES):
            state = explorer.move(state).state
    except WorldFailed as error:
        raise ProposalError(f"does not run: {error}") from error
    finally:
        world.close()
