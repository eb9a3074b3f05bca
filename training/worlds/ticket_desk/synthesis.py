"""Task bundles from families of rules: a rule, a state that shows its boundaries, a request, and right and wrong ways. Pure."""

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from random import Random
from typing import Any, Literal, get_args

from ledger.bundle import BundleDraft, Split
from ledger.canonical import digest
from ledger.errors import BundleError
from training.worlds import ToolCall
from training.worlds.ticket_desk.constants import drawn
from training.worlds.ticket_desk.families import Family, families_at
from training.worlds.ticket_desk.levels import Level, level_at
from training.worlds.ticket_desk.people import POOLS
from training.worlds.ticket_desk.phrases import VOICES
from training.worlds.ticket_desk.readings import Elsewhere, OpenPoint, elsewhere, number_of, open_points
from training.worlds.ticket_desk.render import Telling, earlier_text, note_texts, request_text
from training.worlds.ticket_desk.rules import Age, All, Cooldown, Mail, Not, Priority, Rule, SetReminded, Status, nodes, rule_json
from training.worlds.ticket_desk.schemas import WALK
from training.worlds.ticket_desk.situations import drawn_situation, situation
from training.worlds.ticket_desk.solve import Job, equivalents, reference, settable, wrongs
from training.worlds.ticket_desk.state import USER_ERRORS, DeskState, Fact, Profile, User, parse_time, view_of
from training.worlds.ticket_desk.world import TicketDesk

TABLE = ("query_tickets", "get_owner", "send_email", "send_digest", "update_ticket", "get_desk", "ask_user")
SYSTEM = {
    "walk": "You run a ticket desk with tools. Count all ages from now. Use one tool call at a time. Say DONE at the end.",
    "table": (
        "You run a ticket desk with tools. It is {now}; count all ages from then. A day is 24 hours; calendar days are the difference of"
        " two dates; business days are the days after the first date up to today's, without Saturdays, Sundays and the desk's holidays."
        " Ask the user where the request can mean two things. Use one tool call at a time. Say DONE at the end."
    ),
}
HINT = (
    "Read the whole request before you act, and look up what it refers to. List the tickets first and check every condition and every"
    " exception on each row; mind whether a limit counts itself. Do the steps in the order that is asked for, once a ticket, and change"
    " nothing else."
)
_REDRAWS = 6
RowKind = Literal["boundary", "drawn"]
ROW_KINDS: tuple[RowKind, ...] = ("boundary", "drawn")
Slice = Literal["instances", "families", "wordings", "names"]
SLICES: tuple[Slice, ...] = get_args(Slice)
"""What alone sets the tasks of a slice apart from those for training: nothing but the draw, or families, wordings or names."""
JUDGEMENTS = ("cooldown", "age", "status", "other")
"""What a rule may leave to the policy that no filter of `list_tickets` decides."""


@dataclass(frozen=True)
class _Place:
    """Where a task stands: its split, and the voice and the pool of names that belong to it."""

    split: Split
    voice: int
    pool: int


def synthesize(families: int, seed: int, *, level: int | None = None) -> list[BundleDraft]:
    """One task of each of so many distinct families; the same arguments give the same tasks.

    Args:
        families: how many, from 0 to the number of families that the level has.
        seed: any integer.
        level: a level's number, which sets rules, request and state; for None every family comes at its own lowest level, the
            families of all levels mixed.
    Raises:
        BundleError: there are not so many families, or no such level.
    """
    known = list(families_at(level))
    if not 0 <= families <= len(known):
        raise BundleError(f"families is {families}; allowed: 0 to {len(known)}{'' if level is None else f' at level {level}'}")
    Random(f"ticket_desk/order/{seed}").shuffle(known)
    return [draft_of(family, seed, index, level=level) for index, family in enumerate(known[:families])]


def tasks(count: int, seed: int, *, level: int | None = None) -> list[BundleDraft]:
    """So many tasks, the families of the level in turn with other constants every time round.

    Raises:
        BundleError: `count` is negative, or no such level.
    """
    if count < 0:
        raise BundleError(f"count is {count}; allowed: 0 or more")
    known = list(families_at(level))
    Random(f"ticket_desk/order/{seed}").shuffle(known)
    return [draft_of(known[index % len(known)], seed, index, level=level) for index in range(count)]


def slice_tasks(
    count: int, seed: int, split: Split, apart: Slice | None = None, *, level: int = 0, judging: Collection[str] = JUDGEMENTS,
    rows: RowKind = "boundary",
) -> list[BundleDraft]:  # fmt: skip
    """So many tasks of one slice, its families in turn; two slices have no task in common, nor has one slice in two splits.

    Args:
        split: for `train`, the tasks that are trained on, which no slice sets apart; else `validation` or `test`.
        apart: what alone is held out; families, wordings and names are otherwise those for training.
        judging: families in which the policy has to judge only some of these itself, ticket by ticket, and at least one.
        rows: `boundary` places tickets on and beside every limit of the rule, `drawn` draws them as they come.
    Raises:
        BundleError: `count` is negative, a slice of `train` or no slice of another split, no such level, or no such family.
    """
    if count < 0:
        raise BundleError(f"count is {count}; allowed: 0 or more")
    if (split == "train") != (apart is None) or apart not in (None, *SLICES):
        raise BundleError(
            f"split {split!r} with slice {apart!r}; allowed: train without one, the other splits with one of {', '.join(SLICES)}"
        )
    wanted = split if apart == "families" else "train"
    known = [
        family
        for family in families_at(level)
        if split_of(family.family_id) == wanted and (set() < judgements(family.rule) <= set(judging))
    ]
    if not known:
        left = ", ".join(judging) or "nothing"
        raise BundleError(
            f"no family of split {wanted} at level {level} leaves just {left} to judge; allowed: some of {', '.join(JUDGEMENTS)}"
        )
    name = apart or "train"
    Random(f"ticket_desk/order/{seed}/{split}/{name}").shuffle(known)
    return [draft_of(known[index % len(known)], seed, index, level=level, place=(split, apart), rows=rows) for index in range(count)]


def judgements(rule: Rule) -> set[str]:
    """What of the rule no filter of `list_tickets` decides: any of `JUDGEMENTS`."""
    found = {"cooldown"} if rule.cooldown is not None else set()
    for node in nodes(rule):
        if isinstance(node, Age) and (node.bound, node.unit, node.clock) != ("over", "elapsed", "opened"):
            found.add("age")
        elif isinstance(node, Status):
            found.add("status")
        elif not isinstance(node, All | Not | Priority | Age | Status | Cooldown | Rule | Mail | SetReminded):
            found.add("other")
    return found


def split_of(family_id: str) -> Split:
    """The split to which a family belongs, whatever the seed: of eight, six train, one validation, one test."""
    place = int(family_id[:8], 16) % 8
    return "validation" if place == 6 else "test" if place == 7 else "train"


def draft_of(
    family: Family, seed: int, index: int, *, level: int | None = None, place: tuple[Split, Slice | None] | None = None,
    rows: RowKind = "boundary",
) -> BundleDraft:  # fmt: skip
    """One task of the family.

    Args:
        seed, index: with the family, the level and the place they decide everything else.
        level: a level's number, or None for the family's own.
        place: split and slice; for None the family's own split, with the wordings and names that belong to it.
    Raises:
        BundleError: no such level, or no state was found that shows the rule.
    """
    made: BundleDraft = pickle.loads(_drafted(family, seed, index, level=level, place=place, rows=rows))
    return made


@lru_cache(maxsize=2048)
def _drafted(family: Family, seed: int, index: int, *, level: int | None, place: tuple[Split, Slice | None] | None, rows: RowKind) -> bytes:
    """The task as bytes, of which each caller makes its own: an experiment that is opened again need not make its tasks again."""
    number = family.level if level is None else level
    knobs = level_at(number)
    key = "" if place is None else f"/{place[0]}/{place[1] or 'train'}{'' if rows == 'boundary' else '/drawn'}"
    rng = Random(f"ticket_desk/{seed}/{index}/{number}/{family.family_id}{key}")
    stands = _place(split_of(family.family_id), knobs, rng) if place is None else _slice_place(*place, knobs, rng)
    job = _job(family, knobs, stands, rng, rows)
    request = _request(job, stands, knobs)
    shown = {"request": request, "initial_state": view_of(job.state), "spec": _spec(job)}
    task: dict[str, Any] = {"name": f"deskf_{seed}_{index}{key.replace('/', '_')}", "world": TicketDesk.name, **shown}
    return pickle.dumps(BundleDraft(
        **task,
        reference=_checked_reference(job, task["name"]),
        hint=HINT,
        split=stands.split,
        provenance={
            "proposer": "ticket_desk", "seed": seed, "licence": "Apache-2.0", "family": family.family_id, "wording": VOICES[stands.voice],
            "names": POOLS[stands.pool][0], "content": digest(shown), "source": {"index": index, "level": number},
            **({"slice": place[1], "held_out": list(_HELD_OUT[place[1]])} if place is not None and place[1] is not None else {}),
        },
    ))  # fmt: skip


def _slice_place(split: Split, apart: Slice | None, knobs: Level, rng: Random) -> _Place:
    """As for training but for the one thing that the slice holds out."""
    train, own = _place("train", knobs, rng), _place(split, knobs, rng)
    return _Place(split, own.voice if apart == "wordings" else train.voice, own.pool if apart == "names" else train.pool)


def _place(split: Split, knobs: Level, rng: Random) -> _Place:
    if split == "train":
        return _Place(split, rng.randrange(knobs.wordings), rng.randrange(len(POOLS) - 2))
    return _Place(split, 3, len(POOLS) - 2) if split == "validation" else _Place(split, 4, len(POOLS) - 1)


def _job(family: Family, knobs: Level, place: _Place, rng: Random, rows: RowKind) -> Job:
    """The rule with its constants, what the request leaves open or out, and the state; other constants where no state shows the first."""
    for last in range(_REDRAWS):
        rule = drawn(family.rule, rng)
        points = open_points(rule)
        point = rng.choice(points) if points and rng.random() < knobs.ambiguity else None
        left_out = elsewhere(rule, rng) if point is None and rng.random() < knobs.omission else None
        others = [*([point.other_rule] if point else []), *([left_out.stale] if left_out else [])]
        try:
            if rows == "drawn":
                state = drawn_situation(rule, rng, knobs, pool=place.pool)
            else:
                state = situation(rule, rng, knobs, pool=place.pool, others=others)
        except BundleError:
            if last + 1 == _REDRAWS:
                raise
            continue
        return Job(rule, _furnished(state, point, left_out, knobs, rng), knobs.form, point, left_out)
    raise AssertionError("unreachable")


def _furnished(state: DeskState, point: OpenPoint | None, left_out: Elsewhere | None, knobs: Level, rng: Random) -> DeskState:
    """The state with the desk's notes and the user behind the request."""
    if state.desk is None:
        return state
    start = parse_time(state.clock.started_at)
    dates = [(start - timedelta(days=days)).date().isoformat() for days in (14, 7)]
    facts = []
    if point is not None:
        error = rng.choice(USER_ERRORS) if rng.random() < knobs.user_errors else None
        facts.append(Fact(point.topic, point.about, point.reply, point.other, error))
    if left_out is not None:
        about = ("how many", "how long", "what is the limit", "which limit", "last week", "standing")
        facts.append(Fact("number", about, f"It is {number_of(left_out.node)}.", f"It is {left_out.stale_number}."))
    desk = Profile(state.desk.time_zone, state.desk.lead_id, state.desk.holidays, note_texts(left_out, dates))
    return replace(state, desk=desk, user=User(tuple(facts)))


def _request(job: Job, place: _Place, knobs: Level) -> dict[str, Any]:
    said = [request_text(job.rule, Telling(place.voice, job.point, job.left_out))]
    if job.left_out is not None and job.left_out.way == "earlier":
        said.insert(0, earlier_text(job.left_out))
    tools: tuple[str, ...] = TABLE
    if knobs.form == "walk":
        tools = (*WALK[:-1], *(["update_ticket"] if settable(job.rule) - {"last_reminded_at"} else []), WALK[-1])
    return {
        "system": SYSTEM[knobs.form].format(now=job.state.clock.now),
        "turns": [[{"role": "user", "content": text}] for text in said],
        "tools": list(tools),
    }


def _spec(job: Job) -> dict[str, Any]:
    """The rule, and where the request has two readings both of them with the user's words for each, the true one first."""
    spec: dict[str, Any] = {"rule": rule_json(job.rule)}
    if job.point is not None:
        told: Sequence[tuple[str, Rule]] = ((job.point.reply, job.rule), (job.point.other, job.point.other_rule))
        spec["readings"] = [{"topic": job.point.topic, "reply": reply, "rule": rule_json(rule)} for reply, rule in told]
    return spec


def _checked_reference(job: Job, name: str) -> dict[str, Any]:
    """The reference with other right ways, all of them acted out, and wrong ones, whose plans differ from the rule's.

    Raises:
        BundleError: a right way ends elsewhere than the reference.
    """
    turns = reference(job)
    end = _played(job, name, turns)
    right = equivalents(job)
    for way in right:
        if _played(job, name, way["turns"]) != end:
            raise BundleError(f"{name}: the way {way['name']} ends elsewhere than the reference")
    return {"turns": turns, "end_state": end, "equivalent": right, "wrong": wrongs(job)}


def _played(job: Job, name: str, turns: Sequence[Sequence[Mapping[str, Any]]]) -> Any:
    """The material end state after the calls, each of which the desk must take."""
    state = job.state
    for call in (call for turn in turns for call in turn):
        state, observation = _DESK.call(state, ToolCall(call["name"], call["arguments"]))
        if observation.error_class is not None:
            raise BundleError(f"{name}: {call['name']} was refused with {observation.error_class}: {observation.content}")
    return _DESK.material(_DESK.view(state))


_DESK = TicketDesk()
_HELD_OUT: dict[Slice, tuple[str, ...]] = {
    "instances": (), "families": ("family",), "wordings": ("text", "wording"), "names": ("names",),
}  # fmt: skip
"""What the check of splits is to compare, beside text together with state, which it always does."""
