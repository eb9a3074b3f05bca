"""Supervised rows drawn into batches of about so many tokens by a seeded order, and their columns. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.examples import Example
from training.optimise.batch import update_batch, weighed
from training.optimise.recipe import BoundTerm
from training.rows import Row
from training.update_batch import Term, UpdateBatch
from training.view import Floats, RolloutView, numbered


@dataclass(frozen=True, eq=False)
class Drawn:
    """The batch of one optimiser step: which examples are in it, their columns, and the weight of each of them."""

    examples: tuple[int, ...]
    batch: UpdateBatch
    weight_Q: Floats


def draws(lengths: Sequence[int], *, steps: int, batch_tokens: int, seed: int) -> list[tuple[int, ...]]:
    """The examples of each step: in a seeded order without replacement, and in a new order when all were used.

    Args:
        lengths: tokens of each example.
        batch_tokens: a step takes examples until one more would be too many; one that is longer goes alone.
    """
    rng = np.random.default_rng(seed)
    waiting: list[int] = []
    found: list[tuple[int, ...]] = []
    for _ in range(steps):
        taken: list[int] = []
        room = batch_tokens
        while True:
            if not waiting:
                waiting = [int(n) for n in rng.permutation(len(lengths))][::-1]
            following = waiting[-1]
            # An epoch's end may bring the same example again: it waits for the next step.
            if taken and (lengths[following] > room or following in taken):
                break
            taken.append(waiting.pop())
            room -= lengths[following]
        found.append(tuple(taken))
    return found


def drawn_batch(examples: Sequence[Example], chosen: tuple[int, ...], term: BoundTerm) -> Drawn:
    """The columns of the chosen examples with the weights of one update, times each example's own weight."""
    rows = [examples[n].row for n in chosen]
    view = rows_view(rows)
    trains_R = np.ones(view.rollouts, dtype=np.bool_)
    own_Q = np.array([examples[n].weight for n in chosen], dtype=np.float64)
    weight_T = weighed(term, view, trains_R, view.mask_T) * own_Q[view.row_T]
    terms = (Term(term.objective, weight_T, view.mask_T, term.coefficient),)
    batch = update_batch(view, np.ones(len(rows), dtype=np.bool_), np.where(view.mask_T, 1.0, 0.0), terms)
    return Drawn(chosen, batch, np.bincount(view.row_T, weights=weight_T, minlength=len(rows)).astype(np.float64))


def rows_view(rows: Sequence[Row]) -> RolloutView:
    """The columns of rows by themselves: what weightings need to know of them; each rollout is a group of its own."""
    names = tuple(dict.fromkeys(row.rollout_id for row in rows))
    blank = ("",) * len(names)
    steps = [int(row.step_T.max(initial=-1)) + 1 for row in rows]
    offset = np.cumsum([0, *steps])
    rollout_Q = numbered([row.rollout_id for row in rows])
    step_T = [np.where(row.step_T >= 0, row.step_T + offset[q], -1) for q, row in enumerate(rows)]
    return RolloutView(
        rollout_id_R=names, group_id_R=names, bundle_id_R=blank, family_R=blank, kind_R=blank, participant_R=blank, fork_R=blank,
        model_version_R=blank, ended_by_R=blank, outcome_R=blank, rollout_S=np.repeat(rollout_Q, steps).astype(np.int64),
        call_id_S=("",) * int(offset[-1]), state_S=("",) * int(offset[-1]), reward_S=np.zeros(int(offset[-1])),
        error_S=("",) * int(offset[-1]), rollout_Q=rollout_Q,
        row_T=np.repeat(np.arange(len(rows), dtype=np.int64), [len(row.ids_T) for row in rows]),
        step_T=np.concatenate(step_T).astype(np.int64), id_T=np.concatenate([row.ids_T for row in rows]).astype(np.int32),
        mask_T=np.concatenate([row.mask_T for row in rows]),
        behaviour_logprob_T=np.concatenate([row.logprob_T for row in rows]).astype(np.float64),
        text_only_Q=np.array([row.text_only for row in rows], dtype=np.bool_),
    )  # fmt: skip
