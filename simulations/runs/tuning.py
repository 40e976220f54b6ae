"""An arm at its own best learning rate, which is chosen on other runs than it is judged on, several times over."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.harness.summary import summary
from simulations.seeds import child_seed

FOLDS = 4
"""How often a learning rate is chosen: how far apart the choices end is what a choice adds to the spread of runs."""

Train = Callable[[float, int, int, np.random.SeedSequence], Array]
"""``train(rate, budgets, runs, seed)``: measures of runs at the first so many budgets, shape (runs, budgets, Q).

The first measure is what is chosen by; the same seed draws the same runs, however many budgets are wanted.
"""


class Tuned(NamedTuple):
    """Runs of an arm, each at the learning rate that other runs chose for its budget.

    Attributes
    ----------
    judged : ndarray, shape (R, C, Q)
    tuning : ndarray, shape (L, C)
        Means of the first measure over all tuning runs.
    chosen : ndarray of int, shape (FOLDS, C)
        Places in the grid of learning rates.
    """

    judged: Array
    tuning: Array
    chosen: Integers


def tuned(train: Train, budgets: int, rates: Sequence[float], runs: tuple[int, int], seed: np.random.SeedSequence) -> Tuned:
    """Choose the learning rate of each budget `FOLDS` times, each on its share of the tuning runs; then train anew with these.

    `runs` are those that tune and those that are judged; a share of these goes with each choice.  A learning rate is scored by
    the mean over itself, twice, and its neighbours, once each, so that no lucky run chooses.
    """
    choosing, judging = (child_seed(seed, part) for part in (0, 1))
    tried = np.stack([train(rate, budgets, runs[0], choosing)[..., 0] for rate in rates])
    folds = tried.reshape(len(rates), FOLDS, -1, budgets).mean(axis=2)
    wide = np.concatenate([folds[:1], folds, folds[-1:]])
    chosen = (wide[:-2] + 2.0 * wide[1:-1] + wide[2:]).argmax(axis=0)
    # A rate that only small budgets want is not trained for long.
    wanted = {place: 1 + int(np.flatnonzero((chosen == place).any(axis=0)).max()) for place in np.unique(chosen)}
    anew = {place: train(rates[place], until, runs[1], judging) for place, until in wanted.items()}
    shares = np.array_split(np.arange(runs[1]), FOLDS)
    judged = np.empty((runs[1], budgets, next(iter(anew.values())).shape[-1]))
    for share, places in zip(shares, chosen, strict=True):
        for c, place in enumerate(places):
            judged[share, c] = anew[place][share, c]
    return Tuned(judged, tried.mean(axis=1), chosen)


def choice_variance(samples: Array) -> float:
    """Return the variance that one choice of the learning rate adds to the mean of its runs, pooled over arms, columns of (R, k).

    Four choices of one arm say little; those of all arms of a cell say enough to be taken as known.
    """
    return max(0.0, float(choice_excess(samples).mean()))


def choice_excess(samples: Array) -> Array:
    """Return, along runs (R, ...), the variance between the means of the `FOLDS` shares, less what runs at one rate make of it.

    Its expectation is what one choice adds to the variance of the mean of its runs; by chance it may be negative.
    """
    shares = np.array_split(samples, FOLDS)
    between = np.var([share.mean(axis=0) for share in shares], axis=0, ddof=1)
    within = np.mean([share.var(axis=0, ddof=1) / len(share) for share in shares], axis=0)
    return np.asarray(between - within)


def tuned_summary(sample: Array, added: float) -> dict[str, float]:
    """Return the summary of runs (R,) at chosen rates, whose standard error counts the choice.

    `added` is the variance that one choice of each arm adds: of a difference of arms the sum over them.  Each arm has `FOLDS`
    choices.
    """
    found = summary(sample)
    return found | {"standard_error": float(np.hypot(found["standard_error"], np.sqrt(added / FOLDS)))}
