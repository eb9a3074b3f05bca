from dataclasses import replace

from audit.behaviour import BehaviourCount, behaviours, counted
from audit.evaluation import Question, evaluate
from ledger.evaluated import Called
from ledger.ledger import LedgerHandle
from tests.evaluation_histories import Attempt, EvaluatedRun
from training.bundles import seal
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.opportunities import OPPORTUNITIES
from training.worlds.ticket_desk.synthesis import tasks


def mailing(draft, keys, *, look: bool = True, error: str | None = None) -> list[Called]:
    return [
        *(Called("get_ticket", {"ticket": key}, None) for key in keys if look),
        *(Called("mail", {"to": "x@y", "ticket": key}, error) for key in keys),
    ]


def test_a_policy_that_mails_everyone_acts_wherever_it_should_hold_back() -> None:
    drafts = tasks(6, 3, level=0)
    shown = [
        (OPPORTUNITIES, OPPORTUNITIES.opportunities(draft), mailing(draft, [place.key for place in OPPORTUNITIES.opportunities(draft)]))
        for draft in drafts
    ]
    counts = counted(shown)
    assert counts and all(count.acted == count.looked_at == count.total for count in counts)
    assert sum(count.right for count in counts if not count.wanted) == 0
    right = [
        (OPPORTUNITIES, OPPORTUNITIES.opportunities(draft), mailing(draft, [p.key for p in OPPORTUNITIES.opportunities(draft) if p.wanted]))
        for draft in drafts
    ]
    assert all(count.right == count.total for count in counted(right))


def test_counts_of_two_rollouts_by_hand() -> None:
    draft = tasks(1, 3, level=0)[0]
    places = OPPORTUNITIES.opportunities(draft)
    wanted = [place for place in places if place.wanted]
    counts = counted([(OPPORTUNITIES, places, mailing(draft, [wanted[0].key], look=False)), (OPPORTUNITIES, places, [])])
    mine = next(count for count in counts if count.wanted and count.condition == wanted[0].condition)
    same = sum(place.condition == wanted[0].condition and place.wanted for place in places)
    assert mine == BehaviourCount(wanted[0].condition, True, 1, 0, 0, 2 * same)


def test_a_call_that_the_world_refused_is_no_action() -> None:
    draft = tasks(1, 3, level=0)[0]
    keys = [place.key for place in OPPORTUNITIES.opportunities(draft)]
    counts = counted(
        [(OPPORTUNITIES, OPPORTUNITIES.opportunities(draft), [*mailing(draft, keys, error="not_found"), Called("mail", None, None)])]
    )
    assert sum(count.acted for count in counts) == 0 and sum(count.looked_at for count in counts) == len(keys)


def test_tasks_that_nobody_classifies_are_counted_apart(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger, count=1)
    plain = replace(generate(1, seed=1)[0], split="validation", provenance={"proposer": "ticket_desk", "slice": "instances"})
    run.bundles.append(replace(run.bundles[0], draft=plain))
    seal(ledger, run.bundles)
    run.measure("tiny", run.version("tiny-a"), [[True], [True]])
    found = behaviours(ledger, evaluate(ledger, Question((run.run_id,))).cells)[0]
    assert (found.rollouts, found.unclassified) == (1, 1)


def test_behaviour_is_read_from_the_recorded_calls(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger, count=2)
    policy, rule = run.version("tiny-a"), run.version("scripted-mail", scripted=True)
    for task, bundle in enumerate(run.bundles):
        keys = [place.key for place in OPPORTUNITIES.opportunities(bundle.draft)]
        run.group(task, "mail", rule, [Attempt(False, calls=[("mail", {"to": "x@y", "ticket": key}) for key in keys])], temperature=None)
        run.group(task, "tiny", policy, [Attempt(False), Attempt(ended_by="world_error", judged=False)])
    cells = evaluate(ledger, Question((run.run_id,))).cells
    learned, fixed = sorted(behaviours(ledger, cells), key=lambda item: item.scripted)
    assert sum(count.acted for count in learned.counts) == 0 and learned.rollouts == 2
    assert all(count.acted == count.total for count in fixed.counts) and fixed.scripted
    assert [count.total for count in learned.counts] == [count.total for count in fixed.counts]
