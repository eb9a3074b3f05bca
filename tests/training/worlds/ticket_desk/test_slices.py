"""Slices for evaluation: each holds out what it says and nothing else, and no task of one is a task for training."""

import pytest

from audit.bundle_batch import BundleBatch, task_digest
from ledger.bundle import Bundle, BundleDraft
from ledger.errors import BundleError, SettingsError
from ledger.settings import Settings
from tests.audit.desk_gates import ran, subject
from training.worlds.source import TaskQuery
from training.worlds.ticket_desk import SOURCE, TicketDesk
from training.worlds.ticket_desk.rules import rule_of
from training.worlds.ticket_desk.synthesis import SLICES, Slice, judgements, slice_tasks, split_of

TRAIN = slice_tasks(60, 2, "train")
APART: dict[Slice, str | None] = {"instances": None, "families": "family", "wordings": "wording", "names": "names"}


def seen(drafts: list[BundleDraft], kind: str) -> set[str]:
    return {draft.provenance[kind] for draft in drafts}


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("apart", SLICES)
def test_a_slice_holds_out_one_thing_alone(apart: Slice, split: str) -> None:
    drafts = slice_tasks(30, 2, split, apart)  # type: ignore[arg-type]
    assert {draft.split for draft in drafts} == {split}
    for kind in ("family", "wording", "names"):
        new, known = seen(drafts, kind), seen(TRAIN, kind)
        assert new.isdisjoint(known) if kind == APART[apart] else new <= known, kind
    if apart == "families":
        assert {split_of(family) for family in seen(drafts, "family")} == {split}


def test_no_instance_is_one_for_training_or_of_another_split() -> None:
    held = [slice_tasks(24, 2, split, apart) for split in ("validation", "test") for apart in SLICES]  # type: ignore[arg-type]
    digests = [task_digest(draft) for drafts in (TRAIN, *held) for draft in drafts]
    assert len(set(digests)) == len(digests)
    assert len({draft.name for drafts in (TRAIN, *held) for draft in drafts}) == len(digests)


def test_a_longer_list_starts_with_the_shorter_one_and_another_seed_gives_others() -> None:
    assert slice_tasks(3, 2, "train") == TRAIN[:3]
    assert {task_digest(draft) for draft in slice_tasks(3, 4, "train")}.isdisjoint(map(task_digest, TRAIN))


@pytest.mark.parametrize("apart", SLICES)
def test_the_check_of_splits_admits_training_tasks_beside_a_slice_and_still_finds_a_copy(apart: Slice) -> None:
    held = slice_tasks(12, 2, "test", apart)
    for draft in TRAIN[:12]:
        results = ran("split_leak", subject(draft, among=held))
        assert {name: result.status for name, result in results.items()} == dict.fromkeys(results, "pass")
    copy = BundleDraft(**{**vars(held[0]), "name": "copy", "split": "train", "provenance": TRAIN[0].provenance})
    assert ran("split_leak", subject(copy, among=held))["split.digest_leak"].status == "fail"


def test_a_batch_of_training_tasks_and_instances_does_not_straddle() -> None:
    drafts = [*TRAIN[:20], *slice_tasks(20, 2, "test", "instances"), *slice_tasks(20, 2, "validation", "instances")]
    assert BundleBatch(tuple(Bundle(draft, "w", "v", "h") for draft in drafts)).straddling == []


def test_judging_keeps_to_families_that_leave_the_policy_just_that() -> None:
    for draft in slice_tasks(12, 2, "train", judging=["cooldown"]):
        rule = rule_of(draft.spec["rule"])
        assert judgements(rule) == {"cooldown"} and rule.cooldown is not None
        listed = draft.reference["turns"][-1][0]["arguments"]  # type: ignore[index]
        assert "older_than_days" in listed
    both = slice_tasks(40, 2, "train", judging=["cooldown", "age"])
    assert {frozenset(judgements(rule_of(draft.spec["rule"]))) for draft in both} == {
        frozenset({"cooldown"}), frozenset({"age", "cooldown"}),
    }  # fmt: skip


def test_numbers_of_the_lowest_level_are_few_and_whole() -> None:
    desk = TicketDesk()
    hours: set[str] = set()
    for draft in TRAIN:
        state = desk.reset(draft, seed=0)
        for ticket in state.tickets:
            assert len(ticket.id) == 3
            content = desk.call(state, _look(ticket.id))[1].content
            days, reminded = (content.split(f'"{name}":')[1].split(",")[0].rstrip("}") for name in ("days", "reminded_hours"))
            assert 0 <= int(days) <= 20
            hours.add(reminded)
    assert hours <= {"null", *(str(number) for number in range(6, 97, 6))}
    assert len(hours) > 12


def _look(ticket: str):  # type: ignore[no-untyped-def]
    from training.worlds import ToolCall

    return ToolCall("get_ticket", {"ticket": ticket})


@pytest.mark.parametrize(
    ("count", "split", "apart", "judging"),
    [
        (-1, "train", None, ["age"]),
        (1, "train", "names", ["age"]),
        (1, "test", None, ["age"]),
        (1, "test", "words", ["age"]),
        (1, "train", None, []),
    ],
)
def test_what_is_no_slice_is_refused(count: int, split: str, apart: str | None, judging: list[str]) -> None:
    with pytest.raises(BundleError, match="allowed"):
        slice_tasks(count, 0, split, apart, judging=judging)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"slice": "names"},
        {"split": "test", "slice": "names"},
        {"families": True, "split": "test", "slice": "names"},
        {"families": True, "level": 0, "split": "tests", "slice": "names"},
        {"families": True, "level": 0, "split": "train", "judging": ["colour"]},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="allowed: train, validation or test"):
        SOURCE.tasks(TicketDesk(), TaskQuery(1, 0, options), Settings())


def test_options_reach_the_slice() -> None:
    options = {"families": True, "level": 0, "split": "test", "slice": "names", "judging": ["cooldown"]}
    found = SOURCE.tasks(TicketDesk(), TaskQuery(2, 3, options), Settings())
    assert list(found) == slice_tasks(2, 3, "test", "names", judging=["cooldown"])
