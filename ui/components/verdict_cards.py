"""Verdicts with their conditions and evidence, reviews, and integrity checks."""

from collections.abc import Mapping, Sequence

import streamlit as st

from ui.components.markup import as_json, chip, details, escape, long_text, status_chip
from ui.data import Check, ConditionTrace, ReviewTrace, VerdictTrace

_TONES = {"passed": "good", "failed": "bad", "error": "warn"}


def verdict_name(verdict: VerdictTrace) -> str:
    """The verifier's name with what a reader must know of it."""
    notes = [verdict.verifier_kind.replace("_", " "), *(["planted"] if verdict.planted else [])]
    return f"{verdict.verifier or verdict.verifier_id[:12]} ({', '.join(notes)})"


def condition_table(conditions: Sequence[ConditionTrace]) -> str:
    """HTML table of conditions: name, status, and evidence that opens."""
    rows = [
        f"<tr><td><b>{escape(condition.name)}</b></td><td>{chip(condition.status, _TONES.get(condition.status, 'quiet'))}"
        f"{'' if condition.in_basis else chip('not in the basis')}</td><td>{_evidence(condition)}</td></tr>"
        for condition in conditions
    ]
    head = '<tr><th style="width:24%">condition</th><th style="width:26%">status</th><th>evidence</th></tr>'
    return f'<div class="tl"><table class="tl-table">{head}{"".join(rows)}</table></div>'


def _evidence(condition: ConditionTrace) -> str:
    if condition.evidence is None:
        return "–"
    return details("evidence", as_json(condition.evidence), opened=condition.status != "passed")


def show_verdict(verdict: VerdictTrace, key: str) -> None:
    """One verdict as a card."""
    with st.container(border=True, key=key, gap=None):
        marks = chip("the one that counts", "info") if verdict.counts else chip(verdict.role.replace("_", " "))
        if verdict.planted:
            marks += chip("planted: has a gap on purpose", "warn")
        st.html(
            f'<div class="tl"><b>{escape(verdict.verifier or "unnamed verifier")}</b> '
            f"{status_chip(verdict.passed, verdict.status)}{marks}{chip(verdict.verifier_kind.replace('_', ' '))}</div>"
        )
        if verdict.conditions:
            st.html(condition_table(verdict.conditions))
        if verdict.side_effect_count:
            effects = details(f"{verdict.side_effect_count} side effects", as_json(verdict.side_effects))
            st.html(f'<div class="tl">{effects}</div>')
        if verdict.error:
            st.html(f'<div class="tl">{details("the verifier broke", as_json(verdict.error))}</div>')
        source = "" if verdict.source is None else details("source of the verifier", as_json(verdict.source))
        digest = f"source {verdict.source_digest[:16]}… · " if verdict.source_digest else ""
        st.html(
            f'<div class="tl">{source}<span style="color:gray;font-size:.72rem">{digest}verdict {escape(verdict.verdict_id)}</span></div>'
        )


def show_reviews(reviews: Sequence[ReviewTrace], verdicts: Sequence[VerdictTrace], names: Mapping[str, str]) -> None:
    """People's decisions, oldest first, with their reasons."""
    by_id = {verdict.verdict_id: verdict_name(verdict) for verdict in verdicts}
    for review in reviews:
        with st.container(border=True, key=f"review-{review.review_id}", gap=None):
            marks = chip(review.decision, _TONES.get(review.decision, "warn")) + (chip("counts", "info") if review.counts else "")
            right = by_id.get(review.right_verdict_id or "", "none of them")
            who = names.get(review.reviewer_id, review.reviewer_id)
            st.html(
                f'<div class="tl"><b>{escape(who)}</b> decided {marks} on {review.occurred_at:%Y-%m-%d %H:%M} UTC'
                f" · right: {escape(right)}</div>"
            )
            long_text(review.reason or "(the reason cannot be read any more)", f"reason-{review.review_id}")


def check_table(checks: Sequence[Check]) -> str:
    """HTML table of integrity checks, failed ones first."""
    rows = [
        f"<tr><td>{chip('holds', 'good') if check.passed else chip('fails', 'bad')}</td><td><b>{escape(check.name)}</b></td>"
        f"<td>{escape(check.detail)}</td></tr>"
        for check in sorted(checks, key=lambda check: check.passed)
    ]
    head = '<tr><th style="width:4.5rem">&nbsp;</th><th style="width:40%">check</th><th>detail</th></tr>'
    return f'<div class="tl"><table class="tl-table">{head}{"".join(rows)}</table></div>'
