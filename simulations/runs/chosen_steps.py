"""The step of an arm, chosen between those of a grid several times over, each on its share of the tuning runs.

As in `tuning`, with two exceptions. A step need not be one of the grid, and each choice trains only its share of the judged runs.
"""

from collections.abc import Callable, Sequence

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.harness.step_search import best_step
from simulations.runs.tuning import FOLDS, choice_excess
from simulations.seeds import child_seed

Trained = Callable[[float, int, np.random.SeedSequence], Array]
"""``trained(step, runs, seed)``: measures of runs, shape (runs, ...)."""


def chosen_steps(steps: Sequence[float] | Array, tried: Array) -> Array:
    """Return the steps that the `FOLDS` shares of the tuning runs choose, shape (FOLDS,); `tried` is success by step, (S, R)."""
    shares = np.array_split(np.arange(tried.shape[1]), FOLDS)
    return np.array([best_step(np.array(steps), -tried[:, share].mean(axis=1)) for share in shares])


def trained_with_each(steps: Array, trained: Trained, runs: int, seed: np.random.SeedSequence) -> Array:
    """Return measures of runs, shape (runs, ...), in shares in order, each at its step (FOLDS,) and on draws of its own.

    With the same seed the draws of a run depend on its share and not on the step. So arms can be compared run by run.
    """
    shares = np.array_split(np.arange(runs), FOLDS)
    return np.concatenate(
        [
            trained(float(step), len(share), child_seed(seed, number))
            for number, (step, share) in enumerate(zip(steps, shares, strict=True))
        ]
    )


def choice_variance_of(arms: Sequence[Array]) -> float:
    """Return the variance that one choice adds to the mean of its runs, pooled over arms (R,) that need not have as many runs."""
    return max(0.0, float(np.mean([choice_excess(arm) for arm in arms]))) if arms else 0.0


def same_shares(one: Array, other: Array) -> Array:
    """Return the differences of the runs (R,) that two arms both have, share by share: those are of the same draws."""
    pairs = zip(np.array_split(one, FOLDS), np.array_split(other, FOLDS), strict=True)
    return np.concatenate([a[: len(b)] - b[: len(a)] for a, b in pairs])
