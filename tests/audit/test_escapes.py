"""Escapes and gaps: a share is counted by the action before, its growth is a warning, and what was not captured has a code."""

from audit.attribution import Attribution
from audit.escapes import EscapeShare, escape_shares, escapes
from audit.gaps import GAPS, gaps_of
from ledger.events import ModelCalled, RolloutEnded
from tests.audit.recorded import Recording


def shares(*excluded: int, action: str = "send_email", of: int = 20) -> list[EscapeShare]:
    return [EscapeShare(action, f"m-{n}", of, count) for n, count in enumerate(excluded)]


def test_an_excluded_share_that_grows_with_the_versions_is_a_warning() -> None:
    (found,) = escapes([*shares(1, 1, 6), *shares(5, 5, 5, action="get_owner")])
    assert (found.action, found.before.share, found.after.share) == ("send_email", 0.05, 0.3)
    assert escapes(shares(6, 3, 4)) == () and escapes(shares(0, 9, of=9)) == ()


def test_a_share_is_counted_by_the_call_before_the_fault() -> None:
    made = Recording().run("oracle")
    subject = made.subject()
    name, _ = subject.tools[1]
    blamed = Attribution("r0", "environment", "tool_timeout", "", (name,), False)
    (share,) = escape_shares([(subject, blamed)])
    assert (share.action, share.model_version, share.excluded) == (subject.text(subject.tools[1][1].name), "m", 1)
    assert escape_shares([(subject, Attribution("r0", "none", None, "", (), True))])[0].excluded == 0


def test_what_was_not_captured_has_a_code() -> None:
    made = Recording().run("oracle")
    assert [gap.code for gap in gaps_of(made.subject())] == ["tokens_not_returned"]
    made.own[:] = [
        body.model_copy(update={"tokens_missing": "scripted policy"}) if isinstance(body, ModelCalled) else body
        for body in made.own if not isinstance(body, RolloutEnded)
    ]  # fmt: skip
    assert [gap.code for gap in gaps_of(made.subject())] == ["tokens_scripted", "end_missing"]
    assert all(gap.event_ids for gap in gaps_of(made.subject())) and len(GAPS) == 15
