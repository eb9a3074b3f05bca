"""Tasks as a model writes them, and what must hold before one of them is used. Runs worlds."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, digest
from ledger.errors import ProposalError
from training.proposers import Document
from training.proposing.acting import SEED, Turns, act, calls_of, with_reference
from training.proposing.answers import excerpt
from training.proposing.drafting import provenance
from training.proposing.wordings import user_request
from training.verifiers import JudgeTask
from training.verifiers.pointed_conditions import pointed_conditions
from training.worlds import World

TASK_FORM = (
    "You write tasks for tool-using agents. You are shown a world: its tools, its state, and a text that gives the topic. Answer with one"
    " JSON object and nothing else: request (what the user asks for, natural, without naming tools), calls (a list of {name, arguments}"
    " that solves it, in order), conditions (a list of {name, says, place, value}: place is a JSON pointer into the state as shown, value"
    " is what must stand there afterwards; nothing outside these places may change), wrong (a list of {name, calls} that"
    " look right and are not). Cite a place for every condition. Use only values that the state holds or that the request says."
)
_EXCERPT = 3000
_STATE = 12000


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Call(_Form):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: dict[str, Any]


class _Condition(_Form):
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,40}$")]
    says: Annotated[str, Field(min_length=1, max_length=500)]
    place: Annotated[str, Field(pattern=r"^/", max_length=500)]
    value: Any


class _Wrong(_Form):
    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,40}$")]
    calls: Annotated[list[_Call], Field(max_length=50)]


class AskedTask(_Form):
    """A task as a model answers it."""

    request: Annotated[str, Field(min_length=10, max_length=4000)]
    calls: Annotated[list[_Call], Field(min_length=1, max_length=50)]
    conditions: Annotated[list[_Condition], Field(min_length=1, max_length=30)]
    wrong: Annotated[list[_Wrong], Field(max_length=10)] = []


class Check:
    """Makes a draft of an answer that holds.

    Args:
        world, base: where, and the draft that gives the initial state.
        document: what the topic is from.
        source: the proposer's name and the draft's seed.
    """

    def __init__(self, world: World[Any], base: BundleDraft, document: Document | None, source: tuple[str, int]) -> None:
        self.world, self.base, self.document = world, base, document
        self.proposer, self.seed = source

    def __call__(self, task: AskedTask) -> BundleDraft:
        """The draft.

        Raises:
            ProposalError: something does not hold; the message says what, for the model to read.
        """
        turns = calls_of([[call.model_dump() for call in task.calls]])
        wrong = [(item.name, calls_of([[call.model_dump() for call in item.calls]])) for item in task.wrong]
        draft = self._draft(task, turns)
        written = with_reference(self.world, draft, turns, others=wrong)
        kept = {item["name"] for item in (written.reference or {})["wrong"]}
        if missing := [name for name, _ in wrong if name not in kept]:
            raise ProposalError(f"not wrong: {', '.join(missing)} ends like the solution, or is one of the others")
        self._judge(written)
        return written

    def _draft(self, task: AskedTask, turns: Turns) -> BundleDraft:
        source = {} if self.document is None else {"document": self.document.name, "document_digest": digest(self.document.text)}
        origin = provenance(
            "asked",
            self.seed,
            self.base,
            wording=digest(task.request)[:12],
            family=[call.name for calls in turns for call in calls],
            **source,
        )
        if self.document is not None:
            origin["licence"] = self.document.licence
        conditions = [condition.model_dump() for condition in task.conditions]
        return replace(
            self.base, name=f"{self.proposer}_{self.world.name}_{self.seed}", request=user_request(self.base, task.request),
            reference=None, hint=None, spec={"verifier": "pointed_conditions", "conditions": conditions}, provenance=origin,
        )  # fmt: skip

    def _judge(self, draft: BundleDraft) -> None:
        """Raises a ProposalError where the conditions do not hold after the solution."""
        view = self.world.view(self.world.reset(draft, seed=SEED))
        end = self.world.view(act(self.world, draft, calls_of((draft.reference or {})["turns"])).state)
        verdict = pointed_conditions(view, end, (), JudgeTask(draft, self.world.material))
        failed = [condition for condition in verdict.conditions if condition.status != "passed"]
        if failed:
            raise ProposalError(f"conditions fail: after the solution {failed[0].name} sees {str(failed[0].evidence)[:300]}")


def question(world: World[Any], base: BundleDraft, document: Document | None) -> str:
    """What a model is asked: the world's tools, the initial state, and the topic."""
    state = world.material(world.view(world.reset(base, seed=SEED)))
    parts = [
        f"Tools of the world {world.name}:\n{canonical_bytes(world.tools(base, turn=0)).decode()}",
        f"Its state:\n{canonical_bytes(state, allow_nul=True).decode()[:_STATE]}",
    ]
    if document is not None:
        parts.append(f"Topic, from {document.name}:\n{excerpt([document.text], _EXCERPT)}")
    return "\n\n".join(parts) + "\n\nWrite one task for this world and topic."
