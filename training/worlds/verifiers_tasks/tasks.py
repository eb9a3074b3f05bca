"""Tasks of a verifiers v1 taskset as bundles, with a reference where the data hold the answer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError
from training.worlds.process_world import ProcessWorld
from training.worlds.source import TaskQuery

OPENING = ("taskset", "path", "config", "requirements")
OPTIONS = (*OPENING, "first", "answer_field", "at_least", "split", "licence")
HOW = "\n\nHand your answer in with the tool submit, then answer DONE."


def load_tasks(world: ProcessWorld, query: TaskQuery, opened: Mapping[str, Any]) -> list[BundleDraft]:
    """`count` tasks of the taskset from its task number `first` on (default 0), in its own order; the query's seed changes nothing.

    Options: `answer_field` (field of the task's data that holds the answer; default `answer`), `at_least` (the weighted sum of rewards
    that success takes; default: the sum of the positive weights), `split`, `licence`.

    Args:
        opened: what the verifier needs to find the taskset again.
    Raises:
        SettingsError: an unknown option.
        BundleError: too few tasks, or one that needs more than a conversation: tools, a runtime, a judge.
    """
    unknown = sorted(query.options.keys() - set(OPTIONS))
    if unknown:
        raise SettingsError(f"world 'verifiers_tasks' takes no option {unknown[0]!r}; allowed: {', '.join(OPTIONS)}")
    first = query.options.get("first", 0)
    rows = world.ask("rows", first=first, count=query.count)
    if len(rows) < query.count:
        raise BundleError(f"taskset {opened['taskset']!r} has {len(rows)} tasks from number {first} on; asked for {query.count}")
    for row in rows:
        if row["unfit"]:
            raise BundleError(f"task {row['idx']} of taskset {opened['taskset']!r} cannot be carried out here: {row['unfit']}")
    return [_draft(world, row, query.options, opened) for row in rows]


def conversation(draft: BundleDraft, answer: str) -> list[dict[str, Any]]:
    """The messages that the rewards see: the task's own, without our words about the tool, and the answer as the assistant's reply."""
    own: list[dict[str, Any]] = [dict(message) for message in draft.spec["messages"]]
    return [*own, {"role": "assistant", "content": answer}]


def _draft(world: ProcessWorld, row: dict[str, Any], options: Mapping[str, Any], opened: Mapping[str, Any]) -> BundleDraft:
    task = {"idx": row["idx"], "hash": row["hash"]}
    system = [{"role": "system", "content": row["system"]}] if row["system"] else []
    said = [dict(message) for message in row["messages"]]
    asked = [*said[:-1], {**said[-1], "content": said[-1]["content"] + HOW}]
    at_least = options.get("at_least", sum(weight for weight in row["rewards"].values() if weight > 0))
    name = str(opened["taskset"]).rpartition("/")[2]
    draft = BundleDraft(
        name=f"{name}-{row['name'] or row['idx']}",
        world="verifiers_tasks",
        request={"system": row["system"], "turns": [asked]},
        initial_state=task,
        spec={"at_least": at_least, "messages": [*system, *said], "opened": dict(opened), "data": row["data"]},
        split=options.get("split", "train"),
        provenance={
            "proposer": "verifiers", "seed": None, "source": name, "licence": options.get("licence", "unknown"), "family": name,
            "wording": f"{name}/prompt", "names": [row["hash"]],
        },
    )  # fmt: skip
    answer = row["data"].get(options.get("answer_field", "answer"))
    if isinstance(answer, str) and _weighed(world.ask("score", task=task, messages=conversation(draft, answer))) >= at_least:
        turns = [[{"name": "submit", "arguments": {"answer": answer}}]]
        return replace(draft, reference={"turns": turns, "wrong": _wrong(world, draft, answer, at_least)})
    return draft


def _wrong(world: ProcessWorld, draft: BundleDraft, answer: str, at_least: float) -> list[dict[str, Any]]:
    """The answer with a letter too many, where the rewards refuse it."""
    longer = f"{answer}x"
    if _weighed(world.ask("score", task=draft.initial_state, messages=conversation(draft, longer))) >= at_least:
        return []
    turns = [[{"name": "submit", "arguments": {"answer": longer}}]]
    return [{"name": "one_letter_more", "turns": turns, "breaks": ["total"]}]


def _weighed(scored: Mapping[str, Mapping[str, Any]]) -> float:
    """The weighted sum of the scores, or NaN where a reward has none."""
    return sum(
        (one["weight"] * sum(score for score in one["scores"].values()) if "scores" in one else float("nan") for one in scored.values()),
        0.0,
    )
