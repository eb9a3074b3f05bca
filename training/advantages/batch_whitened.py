"""Returns whitened over the whole batch (REINFORCE++)."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from ledger.errors import MethodError
from training.advantages import Advantages
from training.advantages._groups import TIED
from training.advantages._voters import SINGLETON, Columns, Voters, chosen, told, voters_of
from training.rewards import Scored
from training.view import Bools, Floats, Ints, RolloutView


def batch_whitened(
    view: RolloutView, reward: Scored, votes_R: Bools, scores: Mapping[str, Scored], *,
    beta: float = 0.0, over: Literal["rollouts", "tokens"] = "rollouts", std: Literal["unbiased", "population"] = "unbiased",
    eps: float = 1e-8,
) -> Advantages:  # fmt: skip
    """A_t = (G_t - mean) / (std + eps) over all voters of the batch, G_t = R - beta x KL summed over the rollout's tokens from t on.

    In units of the standard deviation. There is no group baseline, so tasks of different difficulty are mixed.

    Args:
        view: columns along R and T; tokens are ordered by step within a rollout, in whatever rows they stand.
        reward: rewards along R; None where there is none: advantage 0 and path `fallback:no_reward`.
        votes_R: who shapes mean and deviation, shape (R,); the others have advantage 0 and path `fallback:no_vote`.
        scores: `kl` along T in nats, needed where beta is above 0.
        beta: factor on the KL, at least 0.
        over: what counts once in mean and deviation: each of the `rollouts` (its tokens share one vote), or each of the trained `tokens`.
        std: divisor n - 1 (`unbiased`) or n (`population`).
        eps: at least 0.
    Raises:
        MethodError: shapes differ, a reward is not finite, the KL of a voter's trained token is missing, or a parameter is out of its
            range.

    Source: REINFORCE++, arXiv 2501.03262, advantage with KL in the return and normalisation over the batch. Released code (verl, OpenRLHF)
    whitens over tokens, which is `over = "tokens"`, by rsqrt(var + 1e-8), and lets masked rows vote; verl sets the running return to 0 at
    every token outside its response mask, so that with observations between turns the reward reaches the last turn alone.
    """
    chosen("over", over, ("rollouts", "tokens"))
    chosen("std", std, ("unbiased", "population"))
    if not (beta >= 0 and eps >= 0):
        raise MethodError(f"beta {beta}, eps {eps}; allowed: both at least 0")
    voters = voters_of(view, reward, votes_R)
    trained_T = view.mask_T & voters.votes_R[view.rollout_T]
    return_T = np.where(trained_T, voters.reward_R[view.rollout_T], 0.0)
    if beta > 0:
        return_T = np.where(trained_T, return_T - beta * _later_kl(view, scores, trained_T), 0.0)
    mean, spread, n, tied = _moments(voters, return_T, trained_T, view.rollout_T, over=over, unbiased=std == "unbiased")
    native = n >= 2 and not tied
    adv_T = np.where(trained_T, (return_T - mean) / (spread + eps), 0.0) if native else np.zeros_like(return_T)
    advantage_R = np.where(voters.votes_R, (voters.reward_R - mean) / (spread + eps), 0.0) if native else np.zeros(view.rollouts)
    path_R = voters.path_R if n >= 2 else tuple(SINGLETON if path == "native" else path for path in voters.path_R)
    columns = Columns(
        adv_T, path_R, tuple(advantage_R.tolist()) if beta == 0 else (), {"zero_variance_populations": int(n >= 2 and tied)},
        {"mean_over_voters": _mean(adv_T, trained_T) if over == "tokens" else float(advantage_R[voters.votes_R].mean())}
        if native and beta == 0 else {},
    )  # fmt: skip
    return told(columns, {"population": f"{over} of the batch", "singleton": "zero", "std": std, "eps": eps, "beta": beta})


def _mean(value_T: Floats, mask_T: Bools) -> float:
    return float(value_T[mask_T].mean()) if mask_T.any() else 0.0


def _moments(
    voters: Voters, return_T: Floats, trained_T: Bools, rollout_T: Ints, *, over: str, unbiased: bool
) -> tuple[float, float, int, bool]:
    """Mean, standard deviation, votes, and whether the returns have no variance."""
    if over == "tokens":
        value_N, voter_N = return_T[trained_T], np.arange(np.count_nonzero(trained_T))
    else:
        # A voter without trained tokens votes with its reward.
        silent_R = voters.votes_R & (np.bincount(rollout_T[trained_T], minlength=len(voters.votes_R)) == 0)
        value_N = np.append(return_T[trained_T], voters.reward_R[silent_R])
        voter_N = np.append(rollout_T[trained_T], np.flatnonzero(silent_R))
    if not len(value_N):
        return 0.0, 0.0, 0, True
    held_N = np.bincount(voter_N)[voter_N]
    n = len(np.unique(voter_N))
    mean = float((value_N / held_N).sum() / n)
    square = float(((value_N - mean) ** 2 / held_N).sum())
    return mean, float(np.sqrt(square / max(n - unbiased, 1))), n, bool(np.ptp(value_N) <= TIED)


def _later_kl(view: RolloutView, scores: Mapping[str, Scored], trained_T: Bools) -> Floats:
    """KL summed over each trained token and the later ones of its rollout."""
    if "kl" not in scores or len(scores["kl"].value_R) != len(trained_T):
        have = "no scores named kl" if "kl" not in scores else f"{len(scores['kl'].value_R)} values of kl for {len(trained_T)} tokens"
        raise MethodError(f"{have}; allowed: one value a token, in nats")
    kl_T = np.array(scores["kl"].value_R, dtype=np.float64)
    missing = int(np.count_nonzero(trained_T & ~np.isfinite(kl_T)))
    if missing:
        raise MethodError(f"{missing} trained tokens have no finite kl; allowed: a value for each")
    where = np.flatnonzero(trained_T)
    order = where[np.lexsort((where, view.step_T[where], view.rollout_T[where]))][::-1]
    sums = np.cumsum(kl_T[order])
    rollout = view.rollout_T[order]
    first = np.searchsorted(-rollout, -rollout, side="left")
    later_T = np.zeros(len(trained_T))
    later_T[order] = sums - np.where(first > 0, sums[first - 1], 0.0)
    return later_T
