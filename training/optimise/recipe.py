"""The methods of a stage, bound once: what a batch is assembled by. Pure."""

from dataclasses import dataclass
from typing import Literal

from ledger.methods import Bound
from training.advantages import Advantage, advantages
from training.examples import examples
from training.filters import Filter, filters
from training.objectives import Objective, objectives
from training.train_config import MethodUse, ReinforceStage, SupervisedStage, TrainTable
from training.weightings import Weighting, weightings


@dataclass(frozen=True, eq=False)
class BoundTerm:
    """One term of a loss: its objective, its weighting and its factor."""

    objective: Bound[Objective]
    weighting: Bound[Weighting]
    coefficient: float = 1.0


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a round of rollouts becomes a batch by.

    Attributes:
        advantage: the estimator.
        filters: applied in order.
        terms: of the loss.
        truncated: whether rollouts that a limit ended take part.
        zero_variance: what becomes of groups whose rewards do not differ.
        updates: optimiser steps that the batch is cut into, by group.
        shuffle_seed: rewards are permuted over the round by it, as a control; None trains on the rewards as they are.
        max_mask_fraction: largest share of rollouts without evidence about the policy; None for any.
    """

    advantage: Bound[Advantage]
    terms: tuple[BoundTerm, ...]
    filters: tuple[Bound[Filter], ...] = ()
    truncated: Literal["include", "exclude"] = "include"
    zero_variance: Literal["keep", "drop"] = "keep"
    updates: int = 1
    shuffle_seed: int | None = None
    max_mask_fraction: float | None = None

    @property
    def reads_trainer(self) -> bool:
        """Whether a filter reads the trainer's log-probabilities."""
        return any(hasattr(filters[bound.ref.name], "reads_trainer") for bound in self.filters)

    @property
    def judges_lag(self) -> bool:
        """Whether a filter says which lag is too old; where none does, only what is on policy takes part."""
        return any(hasattr(filters[bound.ref.name], "judges_lag") for bound in self.filters)

    def method_ids(self) -> dict[str, list[str]]:
        """Family to the ids of the bound methods, in the order of their use."""
        return {
            "advantages": [self.advantage.ref.method_id],
            "filters": [bound.ref.method_id for bound in self.filters],
            **term_ids(self.terms),
        }


def term_ids(terms: tuple[BoundTerm, ...]) -> dict[str, list[str]]:
    """Family to the ids of the methods of a loss's terms."""
    return {
        "objectives": [term.objective.ref.method_id for term in terms],
        "weightings": [term.weighting.ref.method_id for term in terms],
    }


def reinforce_recipe(stage: ReinforceStage, *, shuffle_seed: int) -> Recipe:
    """The recipe of a stage of rounds.

    Args:
        shuffle_seed: taken where the stage asks for shuffled rewards.
    Raises:
        MethodError: no such method, or a parameter that it does not take.
    """
    return Recipe(
        advantage=advantages.bind(stage.advantage.name, **stage.advantage.params),
        terms=tuple(bound_term(term.objective, term.weighting, term.coefficient) for term in stage.terms),
        filters=tuple(filters.bind(use.name, **use.params) for use in stage.filters),
        truncated=stage.truncated,
        zero_variance=stage.zero_variance,
        updates=stage.updates,
        shuffle_seed=shuffle_seed if stage.shuffled_rewards else None,
    )


def method_ids(train: TrainTable) -> list[str]:
    """Ids of all methods that the stages name, in the order of the file, so that an experiment with another method is another one.

    Raises:
        MethodError: no such method, or a parameter that it does not take.
    """
    found: list[str] = []
    for stage in train.stages:
        if stage.stage == "reinforce":
            found += [method_id for ids in reinforce_recipe(stage, shuffle_seed=0).method_ids().values() for method_id in ids]
        elif stage.stage == "supervised":
            found += [method_id for ids in term_ids((supervised_term(stage),)).values() for method_id in ids]
            found += [examples.bind(source.examples.name, **source.examples.params).ref.method_id for source in stage.traces]
    return found


def supervised_term(stage: SupervisedStage) -> BoundTerm:
    """The one term of a supervised stage's loss."""
    return bound_term(stage.objective, stage.weighting)


def bound_term(objective: MethodUse, weighting: MethodUse, coefficient: float = 1.0) -> BoundTerm:
    """A term by the names and parameters of its methods.

    Raises:
        MethodError: no such method, or a parameter that it does not take.
    """
    return BoundTerm(objectives.bind(objective.name, **objective.params), weightings.bind(weighting.name, **weighting.params), coefficient)
