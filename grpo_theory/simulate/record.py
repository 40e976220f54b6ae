"""What is kept of training runs on the way: iterates, rewards, and an estimate of the Hessian."""

from typing import NamedTuple

import numba
import numpy as np

from grpo_theory.arrays import Array, Integers
from grpo_theory.compilation import F2, F3, I1, I2, function_value, record_type, stage
from grpo_theory.simulate.sums import ROLLOUT


class Trace(NamedTuple):
    """What is kept of R runs; all empty where nothing is.

    Attributes
    ----------
    path : ndarray, shape (R, n + 1, d)
        The iterates; the first is given.
    mean_rewards : ndarray, shape (R, n)
        The mean reward of each rollout, the penalty in it.
    hessian : ndarray, shape (R, d, d)
        The mean over the window of the score-function estimates of the objective's Hessian (docs/derivations.md, section 13).
    window : ndarray of int, shape (2,)
        The rollouts of the window: the first, and one past the last.
    features : ndarray, shape (M, D, d)
        Of the policy's edges.
    edges, lengths : ndarray of int64, shapes (K, T) and (K,)
    vocabulary_size : int
    """

    path: Array
    mean_rewards: Array
    hessian: Array
    window: Integers
    features: Array
    edges: Integers
    lengths: Integers
    vocabulary_size: int

    def of(self, runs: slice) -> "Trace":
        """Return what is kept of some of the runs."""
        return self._replace(path=self.path[runs], mean_rewards=self.mean_rewards[runs], hessian=self.hessian[runs])


_NONE = np.zeros(0, dtype=np.int64)
NO_TRACE = Trace(
    np.empty((0, 0, 0)),
    np.empty((0, 0)),
    np.empty((0, 0, 0)),
    np.zeros(2, dtype=np.int64),
    np.empty((0, 0, 0)),
    _NONE[:, None],
    _NONE,
    1,
)
TRACE = record_type(Trace, F3, F2, F3, I1, F3, I2, I1, numba.int64)
SIGNATURE = numba.void(numba.int64, ROLLOUT, F3, numba.int64, numba.float64, TRACE)


@stage
def add_hessian(form, tokens, lane, counts, rewards, group_size, strength, trace):
    """Add sum_g {A_g (c_g c_g' - F_g) - strength c_g c_g'} of one group to the form (D, D).

    A_g is the reward less the mean of the group's other rewards (0 where there are none), c_g the covector of the response, and
    F_g = -grad c_g the sum of diag(p) - p p' over the prefixes that it visits; counts and rewards (O, N) are of the outcomes.
    """
    n_logits, n_values = form.shape[0], counts.shape[0] // trace.edges.shape[0]
    mean = 0.0
    for o in range(counts.shape[0]):
        mean += counts[o, lane] * rewards[o, lane] / group_size
    scale = group_size / (group_size - 1.0) if group_size > 1 else 1.0
    covector = np.empty(n_logits)
    for o in range(counts.shape[0]):
        count = float(counts[o, lane])
        if count == 0.0:
            continue
        k = o // n_values
        advantage = scale * (rewards[o, lane] - (mean if group_size > 1 else 0.0))
        covector[:] = 0.0
        for t in range(trace.lengths[k]):
            edge = trace.edges[k, t]
            start = edge // trace.vocabulary_size * trace.vocabulary_size
            for d in range(start, start + trace.vocabulary_size):
                covector[d] = (1.0 if d == edge else 0.0) - tokens[d, lane]
                form[d, d] -= count * advantage * tokens[d, lane]
                for e in range(start, start + trace.vocabulary_size):
                    form[d, e] += count * advantage * tokens[d, lane] * tokens[e, lane]
        for d in range(n_logits):
            for e in range(n_logits):
                form[d, e] += count * (advantage - strength) * covector[d] * covector[e]


@function_value(SIGNATURE)
def keep_nothing(number, rollout, tokens, group_size, strength, trace):
    """Keep nothing of a rollout."""


@function_value(SIGNATURE)
def keep_rollout(number, rollout, tokens, group_size, strength, trace):
    """Keep the mean rewards of the rollout of that number and, within the window, its part of the Hessian."""
    prompts, counts, rewards = rollout.prompts, rollout.counts, rollout.rewards
    n_runs, batch_size = trace.path.shape[0], prompts.shape[0]
    n_logits, dimension = tokens.shape[1], trace.path.shape[2]
    in_window = trace.window[0] <= number < trace.window[1]
    share = 1.0 / (batch_size * group_size * (trace.window[1] - trace.window[0]))
    form = np.empty((n_logits, n_logits))
    half = np.empty((n_logits, dimension))
    for run in range(n_runs):
        trace.mean_rewards[run, number] = 0.0
        for b in range(batch_size):
            for o in range(counts.shape[1]):
                trace.mean_rewards[run, number] += counts[b, o, run] * rewards[b, o, run] / (batch_size * group_size)
            if not in_window:
                continue
            m = prompts[b, run]
            form[:, :] = 0.0
            add_hessian(form, tokens[b], run, counts[b], rewards[b], group_size, strength, trace)
            half[:, :] = 0.0
            for d in range(n_logits):
                for e in range(n_logits):
                    for j in range(dimension):
                        half[d, j] += form[d, e] * trace.features[m, e, j]
            for d in range(n_logits):
                for row in range(dimension):
                    for j in range(dimension):
                        trace.hessian[run, row, j] += share * trace.features[m, d, row] * half[d, j]


@stage
def keep_iterates(count, theta, trace):
    """Keep the iterates (d, R), the `count`-th of their runs."""
    for run in range(trace.path.shape[0]):
        for j in range(theta.shape[0]):
            trace.path[run, count, j] = theta[j, run]
