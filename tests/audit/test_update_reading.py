"""Updates that others recorded are read as far as the ledger knows them, and what is not known is skipped."""

import pytest

from audit.severity import load_policy
from audit.update_audit import audited
from audit.update_reading import read_updates, update_ids
from ledger.errors import UnknownId
from ledger.ledger import LedgerHandle
from tests.update_histories import Training


def test_an_update_without_methods_columns_and_tokens_is_judged_by_what_is_known(ledger: LedgerHandle) -> None:
    history = Training(3)
    ledger.append([ledger.new(body) for body in [*history.base(), *history.update(parts=2)]])
    assert update_ids(ledger, "m1") == update_ids(ledger, "u1") == ("u1",)
    (subject,) = read_updates(ledger, ["u1"])
    assert len(subject.batch_rows) == len(subject.known) == 6 and len(subject.assembled) == len(subject.applied) == 2
    assert len(subject.rewards) == 6 and {known.outcome for known in subject.known.values()} == {"running"}
    done = audited(subject, load_policy("v1", kind="update"))
    status = {name: one.status for name, one in done.results.items()}
    assert "error" not in status.values() and status["reward_rollout_id_join"] == "pass"
    assert done.results["group_one_task"].reason == "the batch names no group of a rollout that is here"
    assert done.results["adv_recompute"].reason == "the estimator is not known: the run was not configured here"
    # None of its rollouts ever ended, and they were trained on all the same.
    assert {found.check for found in done.findings if found.root is None} >= {"failed_attempt_trained", "dispatch_consume_ledger"}


def test_an_update_that_is_not_there_is_named(ledger: LedgerHandle) -> None:
    with pytest.raises(UnknownId, match="no update 'nothing'"):
        list(read_updates(ledger, ["nothing"]))
