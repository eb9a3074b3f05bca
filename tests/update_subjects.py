"""Small updates by hand as audits see them: rollouts of a small view, and what a batch tells of them, which a test may tell wrongly. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from audit.results import CheckResult
from audit.severity import load_policy
from audit.update_checks import update_checks
from audit.update_subject import Declared, DeclaredTerm, Known, Slots, TrainedRow, UpdateSubject
from ledger.events import BatchAssembled, BatchRow, GroupDispatched, LossWeight, RewardDerived, UpdateApplied
from ledger.events.training import TrainingRow
from tests.update_histories import digest
from tests.view_builder import Rolled, view_of
from training.advantages import advantages
from training.rows import Row
from training.train_config import ReinforceStage
from training.view import RolloutView
from training.weightings import weightings

POLICY = load_policy("v1", kind="update")
RULE = digest("rule")


@dataclass(frozen=True)
class Tells:
    """What a batch tells.

    Attributes:
        advantages: of each rollout in the loss, in order; None for one that does not train.
        estimator, params: declared.
        weighting: declared.
        left_out: rollout id to reason.
        groups: rollout id to the group that the batch names, where it is another one.
        rewards: rollout id to the rollout whose reward its row names.
        values: rollout id to the value that its row tells, where it is another one.
        columns: other columns by name along the view's T; `adv_T` and `weight_T` take the place of what the rows give.
        stage: further settings of the stage.
        counters: of the update.
    """

    advantages: Sequence[float | None]
    estimator: str = "group_mean"
    params: Mapping[str, Any] = field(default_factory=dict)
    weighting: str = "rollout_token_mean"
    left_out: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    rewards: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, np.ndarray[Any, Any]] | None = None
    stage: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)


def subject_of(rolled: Sequence[Rolled], tells: Tells) -> UpdateSubject:
    """An update of these rollouts; whatever the test does not tell otherwise is right."""
    view = replace(view_of(*rolled), lag_S=np.zeros(sum(len(one.steps) for one in rolled)))
    stage = ReinforceStage.model_validate({
        "stage": "reinforce", "rounds": 1, "advantage": {"name": tells.estimator, "params": dict(tells.params)},
        "terms": [{"objective": {"name": "ppo_clip"}, "weighting": {"name": tells.weighting}}],
        "optimiser": {"learning_rate": 1e-3}, **tells.stage,
    })  # fmt: skip
    term = DeclaredTerm(weightings.bind(tells.weighting))
    declared = Declared(stage, advantages.bind(tells.estimator, **tells.params), (term,))
    ids = view.rollout_id_R
    rewards = {
        name: (f"reward-event-{name}", RewardDerived(
            reward_id=f"w-{name}", rollout_id=name, rule="outcome", rule_id=RULE, verdict_ids=[] if one.reward is None else [f"v-{name}"],
            value=one.reward, reason="said by the test",
        ))
        for name, one in zip(ids, rolled, strict=True)
    }  # fmt: skip
    known = {
        name: Known(name, one.group, view.bundle_id_R[r], one.kind, r, "policy", "run", 1, one.ended_by, False, one.outcome,
                    f"start-{name}", f"end-{name}", f"verdict-{name}", (rewards[name],))
        for r, (name, one) in enumerate(zip(ids, rolled, strict=True))
    }  # fmt: skip
    adv_R = dict(zip(ids, tells.advantages, strict=True))
    trains = {name for name, value in adv_R.items() if value is not None and name not in tells.left_out}
    rows, weight_R = _rows(view, adv_R, trains, term, tells.columns)
    batch_rows = [
        BatchRow(
            rollout_id=name, reward_id=f"w-{tells.rewards.get(name, name)}", votes=True, trains=name in trains,
            group_id=tells.groups.get(name, one.group), reward=tells.values.get(name, rewards[tells.rewards.get(name, name)][1].value),
            advantage=adv_R[name] if name in trains else None, path="native" if name in trains else None,
            rows=[row.told for row in rows if row.rollout_id == name],
        )
        for name, one in zip(ids, rolled, strict=True) if name not in tells.left_out
    ]  # fmt: skip
    reasons: dict[str, list[str]] = {}
    for name, reason in tells.left_out.items():
        reasons.setdefault(reason, []).append(name)
    batch = BatchAssembled(batch_id="b", run_id="run", round=1, rows=batch_rows, exclusions=reasons, stage="rl", model_version="m-1")
    credit = {name: weight_R[name] * abs(float(adv_R[name] or 0.0)) for name in trains}
    total = sum(credit.values())
    update = UpdateApplied(
        update_id="u", batch_id="b", run_id="run", step=0, model_version_before="m-1", model_version_after="m-2", stage="rl", round=1,
        weights=[
            LossWeight(rollout_id=name, reward_id=f"w-{tells.rewards.get(name, name)}", weight=weight_R[name], advantage=adv_R[name],
                       share=credit[name] / total if total else None)
            for name in ids if name in trains
        ],
        counters=dict(tells.counters),
    )  # fmt: skip
    groups = list(dict.fromkeys(one.group for one in rolled))
    slots = tuple(
        Slots(f"group-event-{group}", GroupDispatched(
            group_id=group, bundle_id=digest("bundle", group), size=len(mine), experiment_id="e", run_id="run", round=1, policy="policy",
            rollout_kind="ordinary",
        ), tuple(mine))
        for group in groups if (mine := [name for name, one in zip(ids, rolled, strict=True) if one.group == group])
    )  # fmt: skip
    return UpdateSubject(
        "u", (("update-event", update),), (("batch-event", batch),), declared, known,
        rewards={body.reward_id: (event_id, body) for event_id, body in rewards.values()}, view=view, rows=rows, slots=slots,
    )  # fmt: skip


def _rows(
    view: RolloutView, adv_R: Mapping[str, float | None], trains: set[str], term: Any, columns: Mapping[str, Any] | None
) -> tuple[tuple[TrainedRow, ...], dict[str, float]]:  # fmt: skip
    trains_R = np.array([name in trains for name in view.rollout_id_R])
    mask_T = view.mask_T & trains_R[view.rollout_T]
    weight_T = np.asarray(term.weighting.call(view, trains_R, mask_T))
    adv_T = np.where(mask_T, np.array([float(adv_R[name] or 0.0) for name in view.rollout_id_R])[view.rollout_T], 0.0)
    given = dict(columns or {})
    weight_T, adv_T = given.pop("weight_T", weight_T), given.pop("adv_T", adv_T)
    number: dict[int, int] = {}
    found = []
    for q, r in enumerate(view.rollout_Q):
        index = number[int(r)] = number.get(int(r), -1) + 1
        name, own = view.rollout_id_R[r], np.flatnonzero(view.row_T == q)
        if name not in trains:
            continue
        row = Row(
            name, index, "agent", view.id_T[own], view.mask_T[own], view.behaviour_logprob_T[own].astype(np.float32),
            view.step_T[own].astype(np.int32), (), "start",
        )  # fmt: skip
        told = TrainingRow(
            index=index, open_reason="start", tokens=len(own), trained=int(np.count_nonzero(weight_T[own])),
            weight=float(np.nansum(weight_T[own])), credit=float(np.nansum(np.abs(weight_T[own] * adv_T[own]))),
        )  # fmt: skip
        extra = {key: column[own] for key, column in given.items()}
        shown = columns is not None
        found.append(TrainedRow(name, "batch-event", told, row, adv_T[own] if shown else None, weight_T[own] if shown else None, extra))
    weight_R = {name: sum(row.told.weight for row in found if row.rollout_id == name) for name in trains}
    return tuple(found), weight_R


def check(name: str, subject: UpdateSubject) -> CheckResult:
    """The result of one check by the shipped policy."""
    (result,) = update_checks[name](subject, POLICY.thresholds)
    return result


def status(name: str, subject: UpdateSubject) -> str:
    """pass, fail, skip or error."""
    return check(name, subject).status
