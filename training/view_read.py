"""The columnar view of a round with its rows and rewards, read from the ledger. Reads the database."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ledger import queries
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle
from ledger.queries import RolloutLine
from ledger.rollout_reading import RolloutsRead, read_rollouts
from training.captured import Captured, captured_calls
from training.rewards import Scored
from training.row_builder import build_rows
from training.rows import BuiltRows, Row
from training.version_lags import version_lags
from training.view import Floats, Ints, RolloutView

_NO_INTS = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class RoundRead:
    """What training starts from; everything along R is in the order of the ids that were asked for.

    Attributes:
        view: rows that train something; one that trains nothing is in `built` alone.
        built: all rows of each rollout, along R.
        reward: of the rule, along R; None where there is none, with the reason.
        reward_id_R: the reward's id, None where none was derived.
        processed_R: how the sampling of each rollout's trained calls differed from the plain distribution; empty where it did not.
            A trainer that does not compute that same distribution refuses the rollout.
        counters: of the rows and of what was left out, over all rollouts.
    """

    view: RolloutView
    built: tuple[BuiltRows, ...]
    reward: Scored
    reward_id_R: tuple[str | None, ...]
    processed_R: tuple[tuple[str, ...], ...]
    counters: Mapping[str, int]


def read_round(ledger: LedgerHandle, rollout_ids: Sequence[str], *, rule: str | None = None, trained: str | None = None) -> RoundRead:
    """View, rows and rewards of these rollouts as of now; everything is joined by rollout id, nothing by position.

    Args:
        rollout_ids: each once.
        rule: of the rewards, by name; None for the newest of any rule.
        trained: the model version that is trained on them, to which the lag of each step is; None: `lag_S` is empty.
    Raises:
        UnknownId: a rollout is not there, or is named twice.
        TokenError: stored tokens are damaged or not what their events committed to.
    """
    queries.fresh(ledger)
    found = read_rollouts(ledger, rollout_ids, rule=rule)
    captured = {rollout_id: captured_calls(found.events[rollout_id], found.tokens) for rollout_id in rollout_ids}
    built = {rollout_id: build_rows(rollout_id, captured[rollout_id].calls) for rollout_id in rollout_ids}
    counters: Counter[str] = Counter()
    for rollout_id in rollout_ids:
        counters.update(captured[rollout_id].left_out)
        counters.update(built[rollout_id].counters)
        counters["rows_that_train_nothing"] += sum(not row.mask_T.any() for row in built[rollout_id].rows)
    reward, moved = _scored(found.rewards, found.lines)
    counters["reward_of_another_verdict"] += moved
    view = view_of(found, captured, built)
    if trained is not None:
        view = replace(view, lag_S=_lags(ledger, view, captured, trained))
    reward_ids = {rollout_id: body.reward_id for rollout_id, body in found.rewards.items()}
    return RoundRead(
        view, tuple(built.values()), reward, tuple(map(reward_ids.get, rollout_ids)),
        tuple(one.processed for one in captured.values()), {name: count for name, count in sorted(counters.items()) if count},
    )  # fmt: skip


def _lags(ledger: LedgerHandle, view: RolloutView, captured: Mapping[str, Captured], trained: str) -> Floats:
    """Of each step the lag of the oldest of the versions that sampled in it, NaN where one of them is no ancestor of the trained one."""
    versions = {call.call_id: call.model_versions for one in captured.values() for call in one.calls}
    lags = version_lags(ledger, trained, {version for call_id in view.call_id_S for version in versions[call_id]})
    return np.array(
        [
            max((lags.get(version, np.nan) for version in versions[call_id]), key=_unknown_last, default=np.nan)
            for call_id in view.call_id_S
        ],
        dtype=np.float64,
    )


def _unknown_last(lag: float) -> float:
    return np.inf if np.isnan(lag) else lag


def _scored(rewards: Mapping[str, RewardDerived], lines: Mapping[str, RolloutLine]) -> tuple[Scored, int]:
    """The rewards along the rollouts, and how many rest on another verdict than the one that counts now."""
    value: list[float | None] = []
    reason: list[str] = []
    moved = 0
    names = sorted({name for body in rewards.values() for name in body.terms})
    terms: dict[str, list[float | None]] = {name: [] for name in names}
    for rollout_id, line in lines.items():
        body = rewards.get(rollout_id)
        unbacked = body is not None and body.value is not None and not body.verdict_ids
        value.append(None if body is None or unbacked else body.value)
        reason.append("no reward was derived" if body is None else "no verdict behind the reward" if unbacked else body.reason)
        moved += body is not None and line.verdict_id is not None and line.verdict_id not in body.verdict_ids
        for name in names:
            terms[name].append(None if body is None else body.terms.get(name))
    return Scored(tuple(value), tuple(reason), {name: tuple(column) for name, column in terms.items()}), moved


def view_of(found: RolloutsRead, captured: Mapping[str, Captured], built: Mapping[str, BuiltRows]) -> RolloutView:
    """The columns of the rollouts in `found`, in its order.

    Args:
        found: what the ledger holds of them.
        captured, built: rollout id to its calls and to its rows.
    """
    lines = list(found.lines.values())
    rows = [(r, row) for r, line in enumerate(lines) for row in built[line.rollout_id].rows if row.mask_T.any()]
    steps = _steps_of(rows, lines, captured)
    number = {(r, call_id): s for s, (r, call_id) in enumerate(steps)}
    step_of = [captured[lines[r].rollout_id].steps.get(call_id) for r, call_id in steps]
    return RolloutView(
        rollout_id_R=tuple(line.rollout_id for line in lines),
        group_id_R=tuple(line.group_id for line in lines),
        bundle_id_R=tuple(line.bundle_id for line in lines),
        family_R=tuple(str(found.provenance.get(line.bundle_id, {}).get("family", "")) for line in lines),
        kind_R=tuple(line.rollout_kind for line in lines),
        participant_R=tuple(line.participant or "" for line in lines),
        fork_R=tuple(_fork(captured[line.rollout_id]) for line in lines),
        model_version_R=tuple(_oldest(captured[line.rollout_id], line) for line in lines),
        ended_by_R=tuple(line.ended_by or "" for line in lines),
        outcome_R=tuple(line.outcome for line in lines),
        rollout_S=np.array([r for r, _ in steps], dtype=np.int64),
        call_id_S=tuple(call_id for _, call_id in steps),
        state_S=tuple("" if step is None else step.state for step in step_of),
        reward_S=np.zeros(len(steps), dtype=np.float64),
        error_S=tuple("" if step is None else step.error for step in step_of),
        rollout_Q=np.array([r for r, _ in rows], dtype=np.int64),
        row_T=np.repeat(np.arange(len(rows), dtype=np.int64), [len(row.ids_T) for _, row in rows]),
        step_T=np.concatenate([_NO_INTS, *(_numbered(row, [number[r, call_id] for call_id in row.call_ids]) for r, row in rows)]),
        id_T=np.concatenate([np.zeros(0, np.int32), *(row.ids_T for _, row in rows)]),
        mask_T=np.concatenate([np.zeros(0, np.bool_), *(row.mask_T for _, row in rows)]),
        behaviour_logprob_T=np.concatenate([np.zeros(0, np.float64), *(row.logprob_T.astype(np.float64) for _, row in rows)]),
        text_only_Q=np.array([row.text_only for _, row in rows], dtype=np.bool_),
    )


def _steps_of(rows: Sequence[tuple[int, Row]], lines: Sequence[RolloutLine], captured: Mapping[str, Captured]) -> list[tuple[int, str]]:
    """Rollout and call of each step, in the order of dispatch within a rollout."""
    index = {(r, call.call_id): call.index for r, line in enumerate(lines) for call in captured[line.rollout_id].calls}
    pairs = [(r, call_id) for r, row in rows for call_id in row.call_ids]
    return sorted(pairs, key=lambda pair: (pair[0], index[pair], pair[1]))


def _numbered(row: Row, numbers: Sequence[int]) -> Ints:
    return np.where(row.step_T >= 0, np.array(numbers, dtype=np.int64)[row.step_T], -1)


def _fork(captured: Captured) -> str:
    started = captured.started
    return "" if started is None or started.parent_rollout_id is None else f"{started.parent_rollout_id}@{started.fork_step}"


def _oldest(captured: Captured, line: RolloutLine) -> str:
    sampled = [version for call in captured.calls if call.trainable for version in call.model_versions]
    return sampled[0] if sampled else line.model_version or ""
