"""The disagreements page: the list, both verdicts, and a decision that becomes one event."""

from streamlit.testing.v1 import AppTest

from ledger import lineage
from ledger.events import ReviewDecided
from ledger.queries import Filter, disagreements, fresh
from tests.ui.conftest import Open, Site, html_of


def _decide(app: AppTest, decision: str, right: int, reason: str, name: str) -> AppTest:
    app.radio(key="decision").set_value(decision)
    app.radio(key="right-verdict").set_value(right)
    app.text_area(key="reason").input(reason)
    app.text_input(key="reviewer").input(name)
    return _save(app)


def _save(app: AppTest) -> AppTest:
    return next(button for button in app.button if button.label == "Save the decision").click().run()


def test_open_disagreements_are_listed_with_who_says_what(site: Site, page: Open) -> None:
    app = page(site.url, "disagreements", data_dir=site.data_dir)
    assert not app.exception
    app.segmented_control(key="disagreement-state").set_value("all").run()
    table = app.dataframe[0].value.set_index("rollout id")
    row = table.loc[site.rollouts["disputed"]]
    assert "desk_conditions" in row["say failed"]
    assert "desk_without_cooldown*" in row["say passed"]
    assert site.rollouts["broken"] not in table.index


def test_a_decision_needs_everything(site: Site, page: Open) -> None:
    app = page(site.url, "disagreements", data_dir=site.data_dir, rollout=site.rollouts["disputed"])
    _save(app)
    assert app.warning[0].value == "Still needed: what happened, which verdict is right, a reason, your name."
    assert not lineage.trace_rollout(site.ledger, site.rollouts["disputed"]).reviews


def test_a_decision_is_one_event_however_often_it_is_saved(site: Site, page: Open) -> None:
    rollout_id = site.rollouts["double"]
    app = page(site.url, "disagreements", data_dir=site.data_dir, rollout=rollout_id)
    _decide(app, "failed", 0, "C3: <b>T1</b> was reminded 3 hours before", "Ann  Example")
    assert not app.exception
    assert app.success[0].value == "The decision is recorded; the trace shows it."
    _save(app)
    reviews = lineage.trace_rollout(site.ledger, rollout_id).reviews
    assert [review.decision for review in reviews] == ["failed"]
    assert reviews[0].reason == "C3: <b>T1</b> was reminded 3 hours before"
    assert reviews[0].right_verdict_id in reviews[0].verdict_ids

    again = page(site.url, "disagreements", data_dir=site.data_dir, rollout=rollout_id)
    _decide(again, "failed", 0, "the rule is plain", "Bob")
    trace = lineage.trace_rollout(site.ledger, rollout_id)
    assert [review.decision for review in trace.reviews] == ["failed", "failed"]
    assert len({review.reviewer_id for review in trace.reviews}) == 2

    shown = html_of(page(site.url, "trace", data_dir=site.data_dir, rollout=rollout_id))
    assert "Ann Example" in shown
    assert "C3: &lt;b&gt;T1&lt;/b&gt; was reminded" in shown
    fresh(site.ledger)
    settled = disagreements(site.ledger, Filter(rollout_id=rollout_id), reviewed=True)
    assert settled.total == 1


def test_a_name_is_in_no_event(site: Site, page: Open) -> None:
    app = page(site.url, "disagreements", data_dir=site.data_dir, rollout=site.rollouts["disputed"])
    _decide(app, "unclear", 2, "cannot be said", "Zoë Quimby")
    bodies = [event.body for event in site.ledger.read(kinds=["ReviewDecided"])]
    assert all("Quimby" not in str(body) for body in bodies)
    last = bodies[-1]
    assert isinstance(last, ReviewDecided)
    assert last.right_verdict_id is None
    assert last.reviewer_id.startswith("person-")
    fresh(site.ledger)
    assert disagreements(site.ledger, Filter(rollout_id=site.rollouts["disputed"]), reviewed=False).total == 1


def test_a_rollout_without_disagreement_has_no_form(site: Site, page: Open) -> None:
    app = page(site.url, "disagreements", data_dir=site.data_dir, rollout=site.rollouts["solved"])
    assert "nothing to settle" in app.info[0].value
    assert not app.radio


def test_an_empty_ledger_has_no_disagreement(ledger_url: str, page: Open) -> None:
    app = page(ledger_url, "disagreements")
    assert not app.exception
    assert "No disagreement here" in app.info[0].value
