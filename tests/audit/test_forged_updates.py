"""A real round is found faultless; the same round as a faulty trainer would have recorded it has the check meant for the fault as its root."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from audit.audit_command import audit as audit_group
from audit.findings import Finding
from audit.severity import load_policy
from audit.update_audit import AuditedUpdate, audited
from audit.update_reading import read_updates, update_ids
from ledger.attempts import counted
from ledger.errors import UnknownId
from ledger.events import CheckRan, FindingRaised, ReviewDecided, VerdictGiven
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from tests.audit.forged_updates import ROUND, Forge, forge, run_to_round, sliced, told
from tests.conftest import Cluster
from training.rewards import Scored

POLICY = load_policy("v1", kind="update")


@pytest.fixture(scope="module")
def whole(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A run up to its first batch."""
    url, folder = cluster.migrated_database(), tmp_path_factory.mktemp("run")
    run_to_round(url, folder)
    yield url, folder
    cluster.drop(url)


@pytest.fixture
def forged(cluster: Cluster, whole: tuple[str, Path], request: pytest.FixtureRequest) -> Iterator[Forge]:
    """The round in a ledger of its own, which holds all that the run's ledger holds."""
    name = f"{whole[0].rpartition('/')[2]}_{abs(hash(request.node.name)) % 10**8}"
    with psycopg.connect(cluster.server.url("postgres"), autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name} TEMPLATE {whole[0].rpartition('/')[2]}")
    url = cluster.server.url(name)
    with forge(url, whole[1]) as opened:
        yield opened
    cluster.drop(url)


def audit(ledger: LedgerHandle, update_id: str) -> AuditedUpdate:
    (subject,) = read_updates(ledger, update_ids(ledger, update_id))
    return audited(subject, POLICY)


def rooted(done: AuditedUpdate) -> tuple[list[Finding], dict[str, Finding]]:
    """The roots, and what follows from the first of them by check."""
    roots = [found for found in done.findings if found.root is None]
    return roots, {found.check: found for found in done.findings if found.root is roots[0]}


def test_a_real_round_passes_every_check_that_it_has_the_data_for(forged: Forge) -> None:
    rows, weights = forged.right()
    columns = forged.columns(forged.made) | {"proximal": forged.logprobs(-1), "behaviour": forged.made.round.view.behaviour_logprob_T}
    done = audit(forged.ledger, forged.record(rows, weights, columns=columns))
    by_status = {status: sorted(name for name, one in done.results.items() if one.status == status) for status in ("fail", "error", "skip")}
    assert by_status == {"fail": [], "error": [], "skip": ["train_eval_harness_equal"]} and done.findings == ()
    assert done.results["adv_recompute"].measured["rollouts"] == len(rows) and done.subject.unread == ""


def test_what_was_said_after_the_batch_changes_nothing_of_what_it_knew(forged: Forge) -> None:
    update_id, ledger = forged.record(*forged.right()), forged.ledger
    rollout_id = forged.made.round.view.rollout_id_R[0]
    verdict_id = counted(ledger, forged.training.run_id, ROUND)[0].verdict_id
    reason = ledger.pending("the verifier was wrong")
    ledger.append([ledger.new(ReviewDecided(
        review_id="review-1", rollout_id=rollout_id, verdict_ids=[str(verdict_id)], reviewer_id="someone", decision="passed",
        right_verdict_id=None, reason=reason.ref,
    ), reason)])  # fmt: skip
    broken = VerdictGiven(
        verdict_id="late", rollout_id=rollout_id, verifier_id="0" * 64, verifier_kind="human", role="bundle", status="error", passed=None,
        conditions=[], side_effect_count=0,
    )  # fmt: skip
    ledger.append([ledger.new(broken)])
    done = audit(ledger, update_id)
    assert done.findings == () and done.subject.known[rollout_id].outcome != "verifier_failed"


def test_b12_swapped_rewards_are_the_root_of_wrong_advantages(forged: Forge) -> None:
    judged = forged.made.round
    value, ids = list(judged.reward.value_R), list(judged.reward_id_R)
    a, b = 0, next(r for r, one in enumerate(value) if one != value[0] and judged.view.group_id_R[r] == judged.view.group_id_R[0])
    value[a], value[b], ids[a], ids[b] = value[b], value[a], ids[b], ids[a]
    made = forged.again(reward=Scored(tuple(value), judged.reward.reason_R), reward_id_R=tuple(ids))
    done = audit(forged.ledger, forged.record(*told(made)))
    roots, after = rooted(done)
    assert [(one.check, one.fault, one.level) for one in roots] == [("reward_rollout_id_join", "swapped_rewards", "error")]
    assert "adv_recompute" in after
    rewards = {forged.ledger.read_stream(f"reward-{ids[r]}")[0].event_id for r in (a, b)}
    batch = forged.ledger.read_stream("batch-forged")[0].event_id
    assert rewards | {batch} <= set(roots[0].evidence_event_ids)


def test_d1_an_inverted_mask_is_the_root_of_everything_that_is_counted_by_it(forged: Forge) -> None:
    view = forged.made.round.view
    made = forged.again(view=replace(view, mask_T=~view.mask_T))
    rows, weights = told(made)
    counters = forged.counters() | {"tokens": int(np.sum(~view.mask_T))}
    done = audit(forged.ledger, forged.record(rows, weights, columns=forged.columns(made), counters=counters))
    roots, after = rooted(done)
    assert [(one.check, one.fault) for one in roots] == [("mask_eq_sampled", "inverted_mask")]
    assert after.keys() >= {"denominator_eq_mask_sum", "reward_on_masked_token"}


def test_d2_an_inverted_mask_shows_in_the_counts_of_the_rows_alone(forged: Forge) -> None:
    view = forged.made.round.view
    done = audit(forged.ledger, forged.record(*told(forged.again(view=replace(view, mask_T=~view.mask_T)))))
    assert [one.check for one in rooted(done)[0]] == ["mask_eq_sampled"]


def test_e3_a_stale_cache_shows_as_a_gap_of_nats(forged: Forge) -> None:
    view = forged.made.round.view
    stale = forged.logprobs(0)
    gap = float(np.mean(np.abs(stale - view.behaviour_logprob_T)[view.mask_T]))
    assert gap > POLICY.thresholds["gap_mean_most"], "the versions before and after imitation say the same"
    forged.refresh(cache_reset=False, probe_gap=gap)
    rows, weights = forged.right()
    columns = forged.columns(forged.made) | {"proximal": stale}
    done = audit(forged.ledger, forged.record(rows, weights, columns=columns, counters=forged.counters(max(gap, 0.3))))
    roots, after = rooted(done)
    assert [(one.check, one.fault) for one in roots] == [("engine_against_trainer_logprobs", "stale_cache")]
    assert after.keys() == {"mismatch_kl_step"}
    engine = forged.ledger.read_stream(f"engine-torch-{forged.training.run_id}")[-1].event_id
    assert roots[0].evidence_event_ids[0] == engine


def test_a_slice_in_the_batch_twice_is_the_root_of_wrong_weights(forged: Forge) -> None:
    rows, weights = forged.right()
    twice = rows[0].model_copy(update={"rows": [*rows[0].rows, rows[0].rows[0]]})
    heavier = weights[0].model_copy(update={"weight": weights[0].weight + rows[0].rows[0].weight})
    counters = forged.counters() | {"tokens": int(forged.mask_T.sum()) + rows[0].rows[0].trained}
    done = audit(forged.ledger, forged.record([twice, *rows[1:]], [heavier, *weights[1:]], counters=counters))
    roots, after = rooted(done)
    assert [(one.check, one.fault) for one in roots] == [("token_trained_once", "slice_double_counted")]
    assert after.keys() >= {"weight_mode_declared", "denominator_eq_mask_sum"}


def test_b4_slices_that_vote_as_rollouts_are_the_root_of_wrong_advantages(forged: Forge) -> None:
    rows, weights = forged.right()
    mine = next(row for row in rows if row.reward == 1.0)
    # A policy that knows nothing has rollouts of several rows of its own, and they vote as often too.
    wrong = {}
    for group_id in {row.group_id for row in rows}:
        group = [row for row in rows if row.group_id == group_id]
        values = [float(row.reward or 0.0) for row in group for _ in range(len(row.rows) + (row is mine))]
        wrong |= {row.rollout_id: float(row.reward or 0.0) - float(np.mean(values)) for row in group}
    again, credit = [], {}
    for row in rows:
        row = sliced(row) if row.rollout_id == mine.rollout_id else row
        if row.rollout_id in wrong:
            items = [item.model_copy(update={"credit": item.weight * abs(wrong[row.rollout_id])}) for item in row.rows]
            row = row.model_copy(update={"advantage": wrong[row.rollout_id], "rows": items})
        again.append(row)
        credit[row.rollout_id] = sum(item.credit for item in row.rows)
    shares = [
        one.model_copy(
            update={"advantage": wrong.get(one.rollout_id, one.advantage), "share": credit[one.rollout_id] / sum(credit.values())}
        )
        for one in weights
    ]
    roots, after = rooted(audit(forged.ledger, forged.record(again, shares)))
    assert [(one.check, one.fault) for one in roots] == [("group_by_rollout", "slice_double_counted")] and after.keys() == {"adv_recompute"}


def test_the_command_appends_findings_once_with_their_roots(forged: Forge) -> None:
    view, ledger = forged.made.round.view, forged.ledger
    counters = forged.counters() | {"tokens": int(np.sum(~view.mask_T))}
    update_id = forged.record(*told(forged.again(view=replace(view, mask_T=~view.mask_T))), counters=counters)

    def tally(*arguments: str) -> Result:
        settings = Settings(database_url=ledger.url, project="test")
        return CliRunner().invoke(audit_group, ["update", *arguments], obj=settings)

    def text(result: Result) -> str:
        return " ".join(result.stdout.split())

    before = ledger.barrier()
    looked = tally(update_id, "--dry-run")
    assert looked.exit_code == 1 and ledger.barrier() == before and "mask_eq_sampled (inverted_mask)" in text(looked)
    said = tally(update_id, "--json")
    assert said.exit_code == 1
    shown = json.loads(said.stdout)
    assert {one["check"]: one["root"] for one in shown["findings"]}["denominator_eq_mask_sum"] == "mask_eq_sampled"
    ledger.barrier()
    raised = [event.body for event in ledger.read(before, kinds=["FindingRaised"]) if isinstance(event.body, FindingRaised)]
    assert raised[0].check == "mask_eq_sampled" and {one.root_finding_id for one in raised[1:]} == {raised[0].finding_id}
    ran = [event.body for event in ledger.read_stream(f"update-{update_id}") if isinstance(event.body, CheckRan)]
    assert {one.check_id for one in ran} == set(POLICY.severity)
    after = ledger.barrier()
    assert tally(update_id).exit_code == 1 and ledger.barrier() == after
    # Supervised updates of the same run are faultless, and a name that names nothing is misuse.
    supervised = tally(forged.start.version, "--dry-run", "--all")
    assert supervised.exit_code == 0 and "no reward shapes this update" in text(supervised)
    lines = [json.loads(line) for line in tally(forged.training.run_id, "--dry-run", "--json").stdout.splitlines()]
    assert [(line["stage"], line["round"], line["fails"]) for line in lines] == [("copy", 1, False), ("sft", 2, False), ("rl", 3, True)]
    assert isinstance(tally("nothing").exception, UnknownId)
