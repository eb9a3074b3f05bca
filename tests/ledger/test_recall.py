"""Recall: counts are those of the recorded edges, shares those of a count by hand and of plain dictionaries over random histories."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import lineage, lineage_graph, recall, recall_graph
from ledger.cli import run
from ledger.errors import IdempotencyConflict, UnknownId
from ledger.events import BatchAssembled, BatchRow, EventBody, LossWeight, Rejudged, SubjectRecalled, UpdateApplied
from ledger.ledger import LedgerHandle
from ledger.loss_shares import LossShare, loss_shares
from ledger.settings import Settings
from tests.update_histories import VERIFIERS, Training, Written

PROJECTS = itertools.count(1)


def fresh(ledger: LedgerHandle) -> LedgerHandle:
    return LedgerHandle(
        ledger.url, ledger.pool, ledger_id=ledger.ledger_id, project=f"p{next(PROJECTS)}", actor_id="tester", clock=ledger.clock
    )


def write(ledger: LedgerHandle, bodies: Iterable[EventBody]) -> None:
    ledger.append([ledger.new(body) for body in bodies])


def ancestors(written: Written, version: str) -> set[str]:
    found = {version}
    for parent in written.parents.get(version, []):
        found |= ancestors(written, parent)
    return found


def by_hand(written: Written, recalled: set[str]) -> dict[str, tuple[float, float]]:
    """(scope weight, weight) behind each version, counted anew for each."""
    shares = {}
    for version in written.parents:
        made_by = {update for ancestor in ancestors(written, version) for update in written.updates_of.get(ancestor, [])}
        weights = [(reward, w) for update in made_by for reward, w in written.weights[update].items()]
        shares[version] = (sum(w for reward, w in weights if reward in recalled), sum(w for _, w in weights))
    return shares


def check_shares(found: recall.Impact, written: Written, rewards: set[str]) -> None:
    expected = {version: pair for version, pair in by_hand(written, rewards).items() if pair[0] > 0}
    assert {v.model_version: (pytest.approx(v.loss.scope), pytest.approx(v.loss.total)) for v in found.versions} == expected
    for version in found.versions:
        own = [(reward, w) for u in written.updates_of[version.model_version] for reward, w in written.weights[u].items()]
        assert version.loss.own_total == pytest.approx(sum(w for _, w in own))
        assert version.loss.own_scope == pytest.approx(sum(w for reward, w in own if reward in rewards))
        assert (version.loss.direct or 0) + (version.loss.inherited or 0) == pytest.approx(version.loss.share)


# A database for each example would be slow: each has a project of its own.
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), shape=st.lists(st.integers(0, 99), min_size=1, max_size=7), pick=st.integers(0, 99))
def test_shares_are_those_of_plain_dictionaries(ledger: LedgerHandle, seed: int, shape: list[int], pick: int) -> None:
    own, made = fresh(ledger), Training(seed)
    write(own, made.base())
    for number in shape:
        # A branch from any version, a merge of two, or the next of the chain; in one part or in two.
        parents = tuple(dict.fromkeys((made.versions[number % len(made.versions)], made.versions[-1]))) if number % 3 else ()
        write(own, made.update(parents=parents[: 1 + number % 2], parts=1 + number % 2))
    written = made.written
    verifier = VERIFIERS[pick % 3]
    if verifier in written.verifier_of.values():
        found = recall.impact(own, f"verifier-{verifier}")
        check_shares(found, written, {reward for reward, by in written.verifier_of.items() if by == verifier})
    model = made.versions[pick % len(made.versions)]
    check_shares(recall.impact(own, f"model-{model}"), written, {r for r, by in written.sampled_by.items() if by == model})
    reward = f"w{1 + pick % made.rollouts}"
    check_shares(recall.impact(own, f"reward-{reward}"), written, {reward})


def test_shares_along_a_chain_by_hand() -> None:
    # m1: 1 of 4 from the scope; m2: 3 of 4; m3 has no recorded update; m4: none of 2.
    own = {"m1": (4.0, 1.0), "m2": (4.0, 3.0), "m4": (2.0, 0.0)}
    shares = loss_shares(own, {"m1": ["m0"], "m2": ["m1"], "m3": ["m2"], "m4": ["m3"]})
    assert shares["m0"] == LossShare(0.0, 0.0, 0.0, 0.0, 0)
    assert shares["m0"].share is None
    assert (shares["m1"].share, shares["m1"].direct, shares["m1"].inherited) == (0.25, 0.25, 0.0)
    assert (shares["m2"].share, shares["m2"].direct, shares["m2"].inherited, shares["m2"].own_share) == (0.5, 0.375, 0.125, 0.75)
    assert (shares["m3"].share, shares["m3"].own_share, shares["m3"].unrecorded) == (0.5, None, 1)
    assert (shares["m4"].share, shares["m4"].inherited, shares["m4"].unrecorded) == (0.4, 0.4, 1)


def test_a_merge_counts_a_common_ancestor_once_and_a_circle_ends() -> None:
    own = {"a": (2.0, 2.0), "b": (1.0, 0.0), "c": (1.0, 1.0), "d": (1.0, 0.0)}
    shares = loss_shares(own, {"b": ["a"], "c": ["a"], "d": ["b", "c"]})
    assert (shares["d"].scope, shares["d"].total) == (3.0, 5.0)
    circle = loss_shares({"a": (1.0, 1.0), "b": (2.0, 0.0)}, {"a": ["b"], "b": ["a"]})
    assert [(s.scope, s.total) for s in circle.values()] == [(1.0, 3.0), (1.0, 3.0)]


def whole(ledger: LedgerHandle, history: Any) -> None:
    """A verifier's verdict on r0 became half of the loss of model2; a second opinion became a reward too."""
    history.task()
    for slot in range(2):
        history.start(f"r{slot}", slot=slot)
        history.call(f"r{slot}")
    history.reward("r0", "w0", history.verdict("r0", "v0", True), 1.0)
    history.reward("r1", "w1", history.verdict("r1", "v1", False, own=False), 0.0)
    rows = [BatchRow(rollout_id=f"r{n}", reward_id=f"w{n}", votes=True, trains=True) for n in (0, 1)]
    write(ledger, [
        BatchAssembled(batch_id="b", run_id="run1", round=0, rows=rows, exclusions={"env_failed": ["r9"]}),
        UpdateApplied(
            update_id="u", batch_id="b", run_id="run1", step=0, model_version_before="model1", model_version_after="model2",
            weights=[LossWeight(rollout_id=f"r{n}", reward_id=f"w{n}", weight=0.5) for n in (0, 1)], counters={"clipped": 0.25},
        ),
    ])  # fmt: skip


def test_a_verifier_reaches_what_it_judged_and_the_bundle_that_names_it(ledger: LedgerHandle, history: Any) -> None:
    whole(ledger, history)
    found = recall.impact(ledger, "verifier-" + "b" * 64)
    assert found.counts == {"batch": 1, "bundle": 1, "model": 1, "reward": 1, "update": 1, "verdict": 1}
    assert [(v.model_version, v.parents, v.loss.share) for v in found.versions] == [("model2", ("model1",), 0.5)]
    assert (found.untouched, found.links["verifier", "verdict"], found.links["update", "model"]) == (1, 1, 1)
    everything = recall.impact(ledger, "verifier-" + "b" * 64, closure=True)
    assert everything.counts == lineage.downstream(ledger, "verifier-" + "b" * 64)
    assert everything.counts["rollout"] == 2
    assert everything.versions == found.versions


@pytest.mark.parametrize(("subject", "share"), [
    ("world-" + "a" * 64, 1.0), ("harness-" + "d" * 64, 1.0), ("model-model1", 1.0), ("bundle-" + "e" * 64, 1.0), ("verdict-v1", 0.5),
    ("reward-w0", 0.5), ("rollout-r1", 0.5),
])  # fmt: skip
def test_whatever_can_be_recalled_carries_its_share(ledger: LedgerHandle, history: Any, subject: str, share: float) -> None:
    whole(ledger, history)
    found = recall.impact(ledger, subject)
    assert [(v.model_version, v.loss.share) for v in found.versions] == [("model2", share)]


def test_a_supervised_row_weighs_its_rollout(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    history.start("r0")
    weight = LossWeight(rollout_id="r0", reward_id=None, weight=2.0)
    write(ledger, [UpdateApplied(update_id="u", batch_id="b", run_id="run1", step=0, model_version_before="model1",
                                 model_version_after="model2", weights=[weight])])  # fmt: skip
    assert recall.impact(ledger, "rollout-r0").versions[0].loss.share == 1.0


def test_old_servers_count_alike(ledger_15: LedgerHandle) -> None:
    made = Training(4)
    write(ledger_15, made.base())
    for _ in range(3):
        write(ledger_15, made.update(parts=2))
    verifier = made.written.verifier_of["w1"]
    rewards = {reward for reward, by in made.written.verifier_of.items() if by == verifier}
    check_shares(recall.impact(ledger_15, f"verifier-{verifier}"), made.written, rewards)


def test_counting_stops_at_model_versions_and_the_closure_does_not(ledger: LedgerHandle) -> None:
    made = Training(1)
    write(ledger, made.base())
    for _ in range(6):
        write(ledger, made.update())
    first = made.written.verifier_of["w1"]
    direct, all_of_it = (recall.impact(ledger, f"verifier-{first}", closure=closure) for closure in (False, True))
    judged = sum(by == first for by in made.written.verifier_of.values())
    assert (direct.counts["reward"], direct.counts["verdict"]) == (judged, judged)
    assert "rollout" not in direct.counts
    assert all_of_it.counts["rollout"] == made.rollouts - made.groups * made.size
    assert all_of_it.counts == lineage.downstream(ledger, f"verifier-{first}")


def test_what_has_no_downstream_and_what_is_unknown(ledger: LedgerHandle, history: Any) -> None:
    whole(ledger, history)
    elsewhere = Training(2)
    write(fresh(ledger), [*elsewhere.base(), *elsewhere.update()])
    assert recall.impact(ledger, "rollout-r1").untouched == 1
    write(ledger, [next(iter(Training(0).base()))])
    nothing = recall.impact(ledger, "model-m0")
    assert (nothing.counts, nothing.versions, nothing.untouched) == ({}, (), 2)
    with pytest.raises(UnknownId, match="no verifier 'x'"):
        recall.impact(ledger, "verifier-x")
    with pytest.raises(UnknownId, match="a 'group' cannot be recalled; allowed: verifier, world"):
        recall.impact(ledger, "group-group1")


def test_a_replaced_verdict_does_not_taint_the_one_in_its_place(ledger: LedgerHandle, history: Any) -> None:
    whole(ledger, history)
    history.reward("r0", "w2", history.verdict("r0", "v2", False, own=False), 0.0)
    write(ledger, [Rejudged(rejudgement_id="j", rollout_id="r0", old_verdict_id="v0", new_verdict_id="v2")])
    assert recall.impact(ledger, "verifier-" + "b" * 64).counts["reward"] == 1
    assert recall.impact(ledger, "verdict-v0").counts["rejudgement"] == 1


def test_segments_hold_every_edge_once_however_they_were_added(ledger: LedgerHandle) -> None:
    made, sizes = Training(3), []
    write(ledger, made.base())
    for _ in range(9):
        write(ledger, made.update())
        lineage_graph.catch_up(ledger)
        with ledger.connection() as conn:
            rows = conn.execute("SELECT since, upto FROM lineage_segment ORDER BY upto").fetchall()
        sizes.append(len(rows))
        assert [row[0] for row in rows] == [0, *(row[1] for row in rows[:-1])]
    assert max(sizes) <= 4
    assert edges(lineage_graph.load(ledger)) == recorded_edges(ledger)
    lineage_graph.rebuild(ledger)
    assert edges(lineage_graph.load(ledger)) == recorded_edges(ledger)


def edges(graph: lineage_graph.Graph) -> Counter[tuple[Any, ...]]:
    weights = dict(zip(graph.weighted.tolist(), graph.weights.tolist(), strict=True))
    return Counter(
        (int(graph.ids_N[child]), int(graph.ids_N[parent]), *graph.labels[label], weights.get(place))
        for place, (child, parent, label) in enumerate(zip(graph.child_E, graph.parent_E, graph.label_E, strict=True))
    )


def recorded_edges(ledger: LedgerHandle) -> Counter[tuple[Any, ...]]:
    with ledger.connection() as conn:
        return Counter(conn.execute(
            "SELECT child, parent, split_part(name, '-', 1), relation, weight FROM edge JOIN node ON node_id = child"
        ).fetchall())  # fmt: skip


def test_an_event_that_was_ordered_late_is_in_the_next_segment(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    with ledger.pool.connection() as late, late.transaction(force_rollback=False):
        # Its id is taken before and committed after the events that the first segment holds.
        from ledger import store

        store.append(late, ledger.ledger_id, ledger.project, [ledger.new(next(iter(Training(0)._group("g", 1, "model1")))[0])])
        history.start("r0")
        before = lineage_graph.load(ledger)
    after = lineage_graph.load(ledger)
    assert edges(after) == recorded_edges(ledger)
    assert len(after.child_E) == len(before.child_E) + 2


def at(ledger: LedgerHandle) -> Settings:
    return Settings(database_url=ledger.url, project=ledger.project, actor="tester")


def test_the_command_writes_nothing_until_it_is_confirmed(ledger: LedgerHandle, history: Any, capsys: pytest.CaptureFixture[str]) -> None:
    whole(ledger, history)
    assert run(["recall", "verifier", "bbbb"], settings=at(ledger)) == 0
    printed = capsys.readouterr()
    assert "model2" in printed.out
    assert "50.00 %" in printed.out
    assert "dry run" in printed.err
    assert recall.recalled(ledger, "verifier-" + "b" * 64) is None
    assert run(["recall", "verifier", "bbbb", "--confirm"], settings=at(ledger)) == 2
    assert "give --reason" in capsys.readouterr().err
    for _ in range(2):
        assert run(["recall", "verifier", "bbbb", "--reason", "passes empty drafts", "--confirm"], settings=at(ledger)) == 0
    event = recall.recalled(ledger, "verifier-" + "b" * 64)
    assert event is not None
    assert isinstance(event.body, SubjectRecalled)
    assert (event.body.recalled_by, event.body.counts["reward"]) == ("tester", 1)
    assert ledger.blob(event.body.reason.blob_id) == b"passes empty drafts"
    capsys.readouterr()
    assert run(["recall", "verifier", "bbbb", "--json"], settings=at(ledger)) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["versions"][0]["share"], value["recalled"]["by"], value["counts"]["recall"]) == (0.5, "tester", 1)
    assert run(["recall", "verifier", "bbbb", "--reason", "another", "--confirm"], settings=at(ledger)) == 2


def test_another_reason_is_refused(ledger: LedgerHandle, history: Any) -> None:
    history.task()
    found = recall.impact(ledger, "world-" + "a" * 64)
    recall.recall(ledger, found, "it leaks")
    with pytest.raises(IdempotencyConflict, match="same key needs the same content"):
        recall.recall(ledger, found, "it crashes")


def test_graphs_name_the_subject_counts_and_versions(ledger: LedgerHandle, history: Any, capsys: pytest.CaptureFixture[str]) -> None:
    whole(ledger, history)
    assert run(["recall", "environment", "aaaa", "--graph", "dot"], settings=at(ledger)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("digraph recall {")
    assert 'subject -> n_bundle [label="1"]' in shown
    assert '"model2: 100.0 %"' in shown
    text = recall_graph.mermaid(recall.impact(ledger, "world-" + "a" * 64))
    assert 'subject -->|"1"| n_bundle' in text
    assert 'n_update -->|"1"| v0' in text
