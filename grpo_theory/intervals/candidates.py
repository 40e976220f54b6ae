"""Which of several candidates may be the best: a confidence set for the argmax."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from grpo_theory.arrays import Flags
from grpo_theory.intervals.interval import check_level
from grpo_theory.validation import as_real_array


def best_set(samples: ArrayLike, level: float = 0.95) -> Flags:
    """Return which candidates cannot be distinguished from the one with the highest mean, shape (k,).

    A candidate leaves the set if another beats it in a one-sided paired t test at (1 - level)/(k - 1).  The best candidate
    faces k - 1 such tests.  So by Bonferroni's inequality it stays with probability at least the level, whatever the variances
    and correlations.  If several candidates tie for best, this holds for each of them.  This is Hsu's multiple comparison with
    the best (1984) without its assumption of equal variances.

    Parameters
    ----------
    samples : array_like, shape (R, k)
        R independent rows, one column per candidate; columns may be correlated.  Larger is better.
    level : float, default 0.95

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> runs = np.random.default_rng(0).normal([0.7, 0.69, 0.5], 0.05, size=(20, 3))  # final success of 3 settings, 20 seeds each
    >>> gt.intervals.best_set(runs).tolist()
    [True, True, False]
    """
    samples = as_real_array("samples", samples, 2)
    runs, candidates = samples.shape
    if runs < 2:
        raise ValueError(f"samples must have at least 2 rows, got {runs}")
    level = check_level(level)
    if candidates == 1:
        return np.array([True])
    critical = -float(stdtrit(runs - 1, (1.0 - level) / (candidates - 1)))
    kept = []
    for column in samples.T:
        lead = samples - column[:, None]
        kept.append(bool((lead.mean(axis=0) <= critical * lead.std(axis=0, ddof=1) / np.sqrt(runs)).all()))
    return np.array(kept)
