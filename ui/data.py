"""What the pages read and the one thing that they write: queries in, decisions out as events. No other file of `ui` sees the ledger."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic
import streamlit as st

from audit.verifier_list import VerifierLine, recorded, verifier_lines
from ledger import lineage, queries
from ledger.actors import actor_names, person_named
from ledger.connect import connect
from ledger.errors import InvalidEvent, LedgerUnavailable, SchemaMismatch, SettingsError, TallyError, UnknownId
from ledger.events import ModelVersionPublished, ReviewDecided
from ledger.ids import derived_id
from ledger.ledger import LedgerHandle
from ledger.lineage_rows import CallTrace, Check, ConditionTrace, ReviewTrace, ToolTrace, Trace, VerdictTrace
from ledger.outcome import FAULTS, JUDGED, OUTCOMES
from ledger.queries import (
    CallLine,
    Choices,
    Coverage,
    Disagreement,
    Filter,
    MissingRewards,
    OutcomeSummary,
    Page,
    RewardLine,
    RolloutLine,
)
from ledger.settings import Settings
from ledger.verdict_pairs import registered_verifiers
from training.rollout.decoding import Decoder, find_folder, read_decoder
from training.rows_shown import Divergence, Excerpt, RowLine, RowsShown, rollout_rows
from training.worlds.difference import differences

__all__ = [
    "DECISIONS", "FAULTS", "JUDGED", "OUTCOMES", "PAGE_SIZE", "SEARCHED", "CallLine", "CallTrace", "Check", "Choices", "ConditionTrace",
    "Coverage", "Decision", "Decoder", "Disagreement", "Divergence", "Excerpt", "Filter", "LedgerUnavailable", "MissingRewards",
    "OutcomeSummary", "Page", "ReviewTrace", "RewardLine", "RolloutLine", "RowLine", "RowsShown", "SchemaMismatch", "SettingsError",
    "StateChange", "TallyError", "ToolTrace", "Trace", "UnknownId", "VerdictTrace", "VerifierLine", "calls", "choices", "coverage",
    "decide", "decoder", "disagreements", "forget", "group_rollouts", "missing", "opened", "people", "refresh", "rewards", "rows",
    "state_changes", "summary", "trace", "trace_json", "verifier_datasheet", "verifiers",
]  # fmt: skip

PAGE_SIZE = 50
"""Lines of a page of a table."""
SEARCHED = 5000
"""Newest lines that a search by text looks at."""
DECISIONS: tuple[Literal["passed", "failed", "unclear"], ...] = ("passed", "failed", "unclear")


@dataclass(frozen=True)
class Decision:
    """What a reviewer decides.

    Attributes:
        verdict_ids: the verdicts that were compared.
        right_verdict_id: the one that is right; None when none is.
        reason: why, in the reviewer's words; not empty.
        reviewer: the reviewer's name, which stays outside the ledger's events.
    """

    rollout_id: str
    verdict_ids: tuple[str, ...]
    decision: Literal["passed", "failed", "unclear"]
    right_verdict_id: str | None
    reason: str
    reviewer: str


@dataclass(frozen=True)
class StateChange:
    """One place where the state at the end differs from the state at the start; `kind` is added, removed or changed."""

    kind: Literal["added", "removed", "changed"]
    path: str
    before: Any
    after: Any


@st.cache_resource(show_spinner="Opening the ledger…", on_release=lambda handle: handle.close())
def _opened(database_url: str | None, data_dir: str, project: str, actor: str) -> LedgerHandle:
    return connect(Settings(database_url=database_url, data_dir=Path(data_dir), project=project, actor=actor))


def _settings() -> Settings:
    try:
        return Settings()
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(
            f"TALLY_{'_'.join(str(part) for part in first['loc']).upper()} is {first['input']!r}: {first['msg']}"
        ) from error


def opened() -> LedgerHandle:
    """The deployment's ledger, opened once for all sessions of this server.

    Raises:
        TallyError: a setting is wrong, the database cannot be reached, or its schema is behind or ahead.
    """
    settings = _settings()
    return _opened(settings.database_url, str(settings.data_dir), settings.project, settings.actor)


def forget() -> None:
    """Drop the opened ledger, so that the next page opens it again."""
    _opened.clear()


def refresh() -> int:
    """The position up to which everything committed before this call is ordered and folded into what the pages read."""
    return queries.fresh(opened())


def choices() -> Choices:
    """The values that the filters can take."""
    return queries.choices(opened())


def rewards(where: Filter, text: str = "", *, page: int = 1) -> Page[RewardLine]:
    """A page of rewards, newest first; with `text` only those that hold it in an id, a name, a reason or a rule.

    Args:
        text: looked for in the newest `SEARCHED` rewards, whatever its case.
        page: 1-based.
    """
    wanted, offset = text.strip().casefold(), (page - 1) * PAGE_SIZE
    if not wanted:
        return queries.rewards(opened(), where, limit=PAGE_SIZE, offset=offset)
    lines = [line for line in queries.rewards(opened(), where, limit=SEARCHED).lines if _holds(line, wanted)]
    return Page(tuple(lines[offset : offset + PAGE_SIZE]), len(lines), offset)


def _holds(line: RewardLine, wanted: str) -> bool:
    of = line.rollout
    parts = (line.reward_id, line.reason, line.rule, of.rollout_id, of.bundle_id, of.bundle, of.policy, of.model_version, of.reason)
    return any(wanted in part.casefold() for part in parts if part)


def summary(where: Filter) -> OutcomeSummary | None:
    """Outcomes and rewards of all rollouts that the filter asks for; None when there are none."""
    found = queries.outcomes(opened(), where, by=())
    return found[0] if found else None


def missing(where: Filter) -> list[MissingRewards]:
    """Why ended rollouts have no number."""
    return queries.missing_rewards(opened(), where)


def trace(noun: Literal["reward", "rollout"], prefix: str) -> Trace:
    """The whole chain of the reward or rollout whose id begins with `prefix`.

    Raises:
        UnknownId: none, or several, begin so.
    """
    ident = queries.resolve(opened(), noun, prefix.strip())
    return lineage.trace(opened(), ident) if noun == "reward" else lineage.trace_rollout(opened(), ident)


def rows(rollout_id: str) -> RowsShown:
    """The training rows of a rollout, decoded where its tokenizer is on this machine.

    Raises:
        TallyError: no such rollout, or stored tokens that are damaged.
    """
    found: dict[str, Decoder | None] = {}

    def decode(model_version: str, token_ids: Sequence[int]) -> str | None:
        if model_version not in found:
            found[model_version] = decoder(model_version)
        known = found[model_version]
        return None if known is None else known.text(token_ids)

    return rollout_rows(opened(), rollout_id, decode)


def trace_json(shown: Trace) -> bytes:
    """The trace as indented JSON; a lone surrogate, which UTF-8 cannot hold, is written as its escape."""
    return json.dumps(shown.as_json(), indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")


def group_rollouts(group_id: str) -> tuple[RolloutLine, ...]:
    """All attempts of a prompt group by slot and attempt."""
    lines = queries.rollouts(opened(), Filter(group_id=group_id), limit=200, newest=False).lines
    return tuple(sorted(lines, key=lambda line: (line.slot, line.attempt)))


def disagreements(where: Filter, *, reviewed: bool | None, page: int = 1) -> Page[Disagreement]:
    """A page of rollouts whose verifiers disagree, newest first."""
    return queries.disagreements(opened(), where, reviewed=reviewed, limit=PAGE_SIZE, offset=(page - 1) * PAGE_SIZE)


def coverage(where: Filter) -> list[Coverage]:
    """Expected, measured, failed, omitted and unknown slots an experiment, round, policy and world."""
    return queries.coverage(opened(), where)


def calls(kind: Literal["unattributed", "dangling"], *, page: int = 1) -> Page[CallLine]:
    """A page of model calls that belong to no rollout, or that have no answer."""
    ask = queries.unattributed_calls if kind == "unattributed" else queries.dangling_calls
    return ask(opened(), limit=PAGE_SIZE, offset=(page - 1) * PAGE_SIZE)


def verifiers() -> list[VerifierLine]:
    """Every registered verifier version with what its newest audit measured."""
    return verifier_lines(opened())


def verifier_datasheet(verifier_id: str) -> tuple[str, Mapping[str, Any] | None]:
    """Name of a verifier version and its newest datasheet; None where it was never audited.

    Raises:
        UnknownId: no such version is registered.
    """
    known = registered_verifiers(opened()).get(verifier_id)
    if known is None:
        raise UnknownId(f"no verifier {verifier_id!r} in project {opened().project!r}")
    return known.name, recorded(opened(), verifier_id)


def state_changes(shown: Trace) -> list[StateChange] | None:
    """Where the last recorded state differs from the first; None with fewer than two states, or when one cannot be read."""
    if len(shown.snapshots) < 2 or shown.snapshots[0].view is None or shown.snapshots[-1].view is None:
        return None
    before, after = shown.snapshots[0].view, shown.snapshots[-1].view
    return [StateChange(_kind(before, after, c.path), c.path, c.before, c.after) for c in differences(before, after).changes]


def _kind(before: Any, after: Any, path: str) -> Literal["added", "removed", "changed"]:
    if not _exists(before, path):
        return "added"
    return "changed" if _exists(after, path) else "removed"


def _exists(view: Any, path: str) -> bool:
    for part in path.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(view, Mapping) and key in view:
            view = view[key]
        elif isinstance(view, Sequence) and not isinstance(view, str) and key.isdigit() and int(key) < len(view):
            view = view[int(key)]
        else:
            return False
    return True


def decide(decision: Decision) -> str:
    """The review's id; the decision is durable. Saying the same again is the same review, so a double click makes one event.

    Raises:
        UnknownId: no such rollout, or a verdict that is not about it.
        InvalidEvent: no verdict, no reason or no name, or the right verdict is none of those compared.
    """
    ledger, reason = opened(), decision.reason.strip()
    shown = lineage.trace_rollout(ledger, decision.rollout_id)
    _check(decision, reason, {verdict.verdict_id for verdict in shown.verdicts})
    person = person_named(ledger, decision.reviewer)
    mine = [review for review in shown.reviews if review.reviewer_id == person]
    if mine and _content(mine[-1]) == (decision.decision, decision.right_verdict_id, decision.verdict_ids, reason):
        return mine[-1].review_id
    before = mine[-1].review_id if mine else None
    review_id = derived_id(
        "review", decision.rollout_id, person, list(decision.verdict_ids), decision.decision, decision.right_verdict_id, reason, before
    )
    blob = ledger.pending(reason, subject_id=f"actor:{person}")
    body = ReviewDecided(
        review_id=review_id, rollout_id=decision.rollout_id, verdict_ids=list(decision.verdict_ids), reviewer_id=person,
        decision=decision.decision, right_verdict_id=decision.right_verdict_id, reason=blob.ref,
    )  # fmt: skip
    ledger.append([ledger.new(body, blob, actor_id=person, correlation_id=decision.rollout_id)])
    return review_id


def _check(decision: Decision, reason: str, known: set[str]) -> None:
    if decision.decision not in DECISIONS:
        raise InvalidEvent(f"decision {decision.decision!r}; allowed: {', '.join(DECISIONS)}")
    if not reason:
        raise InvalidEvent("a decision without a reason; say in a sentence what shows it")
    if "\x00" in reason:
        raise InvalidEvent("the reason holds \\u0000; allowed: text without it")
    strangers = [verdict_id for verdict_id in decision.verdict_ids if verdict_id not in known]
    if strangers or not decision.verdict_ids:
        raise UnknownId(f"verdict {strangers[0] if strangers else None!r} is not about rollout {decision.rollout_id!r}")
    if decision.right_verdict_id is not None and decision.right_verdict_id not in decision.verdict_ids:
        raise InvalidEvent(f"right verdict {decision.right_verdict_id!r}; allowed: {', '.join(decision.verdict_ids)}, or none")


def _content(review: ReviewTrace) -> tuple[str, str | None, tuple[str, ...], str | None]:
    return review.decision, review.right_verdict_id, review.verdict_ids, review.reason


def people() -> dict[str, str]:
    """Reviewers' pseudonyms and names; an erased name is absent."""
    return actor_names(opened())


def decoder(model_version: str) -> Decoder | None:
    """The decoder of a model version's tokens; None for a scripted one, or when its tokenizer is not on this machine."""
    ledger, settings = opened(), _settings()
    bodies = [event.body for event in ledger.read_stream(f"model-{model_version}")]
    published = next((body for body in bodies if isinstance(body, ModelVersionPublished)), None)
    if published is None or published.tokenizer_digest is None:
        return None
    folder = find_folder(settings.data_dir / "models", published.tokenizer_digest)
    return None if folder is None else _decoder_in(str(folder), published.tokenizer_digest)


@st.cache_resource(show_spinner=False, max_entries=8)
def _decoder_in(folder: str, digest: str) -> Decoder:
    """The decoder in a folder; `digest` is in the cache's key, so that another tokenizer in the same place is read anew."""
    return read_decoder(Path(folder))
