"""What a run declares for the stage of an update: the methods of its `[train]` table, bound as they are here. Pure."""

from collections.abc import Sequence

from audit.update_subject import Declared, DeclaredTerm
from ledger.errors import MethodError
from ledger.events import BatchAssembled
from ledger.methods import Bound
from training.advantages import Advantage, advantages
from training.train_config import MethodUse, ReinforceStage, SupervisedStage, TrainTable
from training.weightings import weightings


def declared(table: TrainTable | str | None, stage: str | None, told: Sequence[BatchAssembled]) -> Declared:
    """The stage's table and methods. A run that was not configured here may still name an estimator that is known by its id.

    Args:
        table: the run's; a text says why it cannot be read.
        stage: name of the update's.
        told: parts of its batch.
    """
    ids = dict(told[0].methods) if told else {}
    if isinstance(table, str):
        return Declared(advantage=_by_id(ids.get("advantages", ())), unreadable=table)
    if table is None:
        return Declared(advantage=_by_id(ids.get("advantages", ())), unreadable="the run was not configured here")
    found = next((one for one in table.stages if one.name == stage), None)
    if found is None:
        return Declared(unreadable=f"the run declares no stage {stage!r}", tolerance_nats=table.engine.probe_tolerance_nats)
    try:
        advantage, terms = _methods(found)
    except MethodError as error:
        return Declared(found, tolerance_nats=table.engine.probe_tolerance_nats, unreadable=f"a method cannot be bound: {error}")
    own = {
        "advantages": [] if advantage is None else [advantage.ref.method_id],
        "weightings": [one.weighting.ref.method_id for one in terms],
    }
    changed = tuple(family for family, names in own.items() if names and family in ids and list(ids[family]) != names)
    return Declared(found, advantage, terms, changed, table.engine.probe_tolerance_nats)


def _methods(stage: object) -> tuple[Bound[Advantage] | None, tuple[DeclaredTerm, ...]]:
    if isinstance(stage, ReinforceStage):
        return (
            advantages.bind(stage.advantage.name, **stage.advantage.params),
            tuple(_term(term.weighting, term.coefficient) for term in stage.terms),
        )
    return None, ((_term(stage.weighting),) if isinstance(stage, SupervisedStage) else ())


def _term(use: MethodUse, coefficient: float = 1.0) -> DeclaredTerm:
    return DeclaredTerm(weightings.bind(use.name, **use.params), coefficient)


def _by_id(ids: Sequence[str]) -> Bound[Advantage] | None:
    """The estimator that has this id here with its default parameters."""
    bound = (advantages.bind(name) for name in advantages.names()) if ids else iter(())
    return next((one for one in bound if one.ref.method_id in ids), None)
