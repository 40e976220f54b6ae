"""Runs of an arm on many draws of a world, at every step of a grid, and GRPO's division taken apart.

Given a prompt with success p, the mean update of GRPO is w(p) grad p. Here ``w(p) = E[f(1 - f)/s]/(p(1 - p))``, f is the share of
successes in a group and s its standard deviation (docs/derivations.md, section 24). The kernels here know p. They have weights
without noise, or noise without weights.
"""

from functools import partial

import numpy as np

from grpo_theory.estimation import find, make_estimator
from grpo_theory.estimation.kernel import centre
from grpo_theory.jit import kernel
from grpo_theory.simulate.training import StepGrid, finite_objectives
from simulations.runs.arms import estimator_of, quietly
from simulations.runs.worlds import World
from simulations.seeds import child_seed

RESPONSES = 64
"""N = BG, those of an update: a group of 64 is then a batch of one prompt."""
STEPS = tuple(2.0**k for k in range(1, 9))
"""The grid of step sizes; with four runs a draw they fill the lanes of a vector."""
RUNS = 4
"""Runs of each draw at each step: more draws make limits narrower than more runs do."""
SMALL = World(prompts=8, answers=16, dimension=32, held_out=0)
"""The least costly world that was found in which the best group size of GRPO grew with the budget, on one draw of it.

So this kind of world was chosen for what it shows. Its draws were not: that draw is none of those that are judged.
"""
WORLDS = {
    "small": SMALL,
    "visible": SMALL._replace(rarest=0.1),
    "apart": SMALL._replace(dimension=0),
    "rarer": SMALL._replace(prompts=10, rarest=2e-4),
    "roomy": SMALL._replace(dimension=96),
    "more prompts": SMALL._replace(prompts=24, answers=8),
    "competing": SMALL._replace(answers=12, right=2),
    "misled": SMALL._replace(prompts=10, transfer=0.06, misled=0.3),
}
"""By name: the first; without rare right answers; without interference; and those on which the law of the best size is judged."""


def over_draws(world, estimator, group_size, budgets, counts, seed, steps=STEPS, look=finite_objectives):
    """Train by plain ascent with constant steps; return mean success at each budget, shape (steps, draws, budgets).

    Each draw of the world is the mean of its runs. Arms with the same seed share the draws and the random words of their runs.

    Parameters
    ----------
    world : str
    estimator : str or Estimator
    group_size : int
    budgets : sequence of int
        Responses spent.
    counts : tuple of int
        The number of draws, which are the first ones, and that of the runs of each.
    seed : SeedSequence
    steps : sequence of float
    look : callable
        ``look(problem, theta)``: what is wanted of policies theta (R, d) in place of success, shape (R, ...).
    """
    quietly()
    updates, (draws, runs), found = [budget // RESPONSES for budget in budgets], counts, []
    for draw in range(draws):
        problem = WORLDS[world].problem(draw)
        grid = StepGrid.of(problem, find(estimator), steps, np.ones(updates[-1]), (RESPONSES // group_size, group_size))
        found.append(grid.looks(partial(look, problem), runs, child_seed(seed, draw), updates).mean(axis=1))
    return np.stack(found, axis=1)


NEAR = 1e-12
"""Success rates nearer to 0 or 1 than this are taken for this: such prompts have groups without signal only."""


@kernel
def division_weight(success, size):
    """Return w(p) of groups of `size` divided by their standard deviation, without epsilon; the same for p and 1 - p.

    The sum goes over numbers j of the rarer reward.  It ends where its terms no longer count.
    """
    q = max(min(success, 1.0 - success), NEAR)
    term = size * (1.0 - q) ** (size - 1.0)  # the binomial probability of j, over q
    total = 0.0
    for j in range(1, int(size)):
        share = j / size
        added = term * np.sqrt(share * (1.0 - share))
        total += added
        if j > size * q and added < 1e-12 * total:
            break
        term *= (size - j) / (j + 1.0) * q / (1.0 - q)
    return total * np.sqrt((size - 1.0) / size) / (1.0 - q)


def weighted(batch, advantages):
    """A = w(p) (Z - mean of the group's other rewards), w that of groups of the parameter's size, whatever the group's own."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        centre(batch.rewards[b], advantages[b])
        factor = division_weight(batch.values[b], batch.parameters[0]) * group_size / (group_size - 1.0)
        for g in range(group_size):
            advantages[b, g] *= factor


def weighted_oracle(batch, advantages):
    """A = w(p) (Z - p), w that of groups of the parameter's size: no baseline is estimated."""
    for b in range(batch.rewards.shape[0]):
        factor = division_weight(batch.values[b], batch.parameters[0])
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = factor * (batch.rewards[b, g] - batch.values[b])


def unweighted(batch, advantages):
    """A = (Z - mean)/(s w(p)): divided as GRPO does, and its mean is the gradient."""
    n_groups, group_size = batch.rewards.shape
    for b in range(n_groups):
        deviation = np.sqrt(centre(batch.rewards[b], advantages[b]) / (group_size - 1.0))
        if deviation > 0.0:
            factor = 1.0 / (deviation * division_weight(batch.values[b], float(group_size)))
            for g in range(group_size):
                advantages[b, g] *= factor


LENT = 64
"""The groups whose weights are lent to smaller ones."""
WEIGHTED = {"weights": weighted, "lent": weighted, "oracle": weighted_oracle}


def arm_estimator(arm, group_size):
    """Return the estimator of an arm at a group size.

    Parameters
    ----------
    arm : str
        A registered name, such as "grpo" or "rloo", or one of five. The arm "weights" has w of the group's own size, and the mean
        of the others as baseline. The arm "oracle" is the same with p as baseline, and "noise" is GRPO over w. In "dropped" the
        mean is over groups with a signal. The arm "lent" has w of groups of 64, at any size.
    group_size : int
    """
    if arm == "noise":
        return make_estimator(arm, unweighted, minimum_group_size=2, exchangeable=True)
    if arm == "dropped":
        return estimator_of(arm, 0.0)
    if arm in WEIGHTED:
        size = float(LENT if arm == "lent" else group_size)
        return make_estimator(arm, WEIGHTED[arm], parameters={"size": size}, minimum_group_size=2, exchangeable=True)
    return find(arm)
