"""The problems on which plans for a named estimator are tried, all with known efficiencies at every group size."""

from collections.abc import Iterator
from functools import cache

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.plan import Limits
from grpo_theory.plan.subgroups import group_table
from simulations.plan import heavy_pilots
from simulations.plan.pilot_problems import HEAD, problem

HEAVY = "lognormal 0.7"
CHAINS = {"long way": 10, "two kinds": 15}
"""Seeds. Of the first 30, these have the best size for TRL's estimator inside the logged ones, and a loss of 20% or more at 2. In
the second RLOO's best size is 8 and that of TRL's is 4."""
NAMES = ("linear", "graded", HEAD, *CHAINS, HEAVY)
PROMPTS, LOGGED, BLOCK = 256, 8, 50
LIMITS = Limits(budget=256, max_group_size=LOGGED)
STATES, TOKENS, HORIZON, FEATURES = 12, 3, 5, 10


@cache
def chain(seed: int) -> gt.Problem:
    """Return a chain of twelve states, each a prompt's first, whose success rates and steps are drawn with a seed."""
    rng = np.random.default_rng(seed)
    transitions = rng.integers(0, STATES, (STATES, TOKENS))
    transitions[:, 0] = (np.arange(STATES) + 1) % STATES  # every state can be left
    policy = gt.TokenChain(transitions, HORIZON, features=rng.normal(size=(STATES, TOKENS, FEATURES)), starts=range(STATES))
    success = 1.0 / (1.0 + np.exp(1.5 - 2.5 * rng.normal(size=STATES)))
    return gt.Problem(gt.StateRewards(success), policy, theta=0.8 * rng.normal(size=FEATURES))


@cache
def listed(name: str) -> gt.Problem:
    """Return the problem that logs are drawn from, a chain's responses listed."""
    return chain(CHAINS[name]).listed() if name in CHAINS else problem(name)


def draw_logs(name: str, rng: np.random.Generator, number: int) -> Iterator[gt.Rollouts | gt.RaggedRollouts]:
    """Draw logs of 256 prompts with 8 responses each, in blocks, because a block takes its scores from one table."""
    pilot = gt.Pilot(PROMPTS, LOGGED)
    for start in range(0, number, BLOCK):
        size = min(BLOCK, number - start)
        if name == HEAVY:
            yield from (heavy_pilots.draw_pilot(name, PROMPTS, False, rng)[0] for _ in range(size))
        else:
            block = pilot.sample(listed(name), rng, size)
            yield from (pilot.take(block, i) for i in range(size))


@cache
def efficiencies(name: str, estimator: str) -> Array:
    """Return the exact efficiency at each allowed group size: of chains by recursion from state to state."""
    if name == HEAVY:
        return heavy_efficiencies(estimator)
    case = chain(CHAINS[name]) if name in CHAINS else problem(name)
    sizes, batches = LIMITS.batches()
    pairs = zip(sizes.tolist(), batches.tolist(), strict=True)
    return np.array([gt.efficiency(case, case.theta, estimator, batch_size=b, group_size=g) for g, b in pairs])


def heavy_efficiencies(estimator: str) -> Array:
    """Return the exact efficiencies where lengths are lognormal.

    With a_i the advantages, ``ghat = (L/G)(A u sum_i a_i (Z_i - p) + sum_i a_i e_i)``. So given p the sums over a group's
    successes are all that is needed. Their binomial means are polynomials in p, which the quadrature averages exactly.
    """
    from scipy.stats import binom  # slow to import, and seldom wanted

    law, found = heavy_pilots.LAWS[HEAVY], gt.estimators()[estimator]
    p, weights = heavy_pilots.rate_nodes()
    gradient = weights @ (p * (1.0 - p))
    values = []
    for size, batch in zip(*(part.tolist() for part in LIMITS.batches()), strict=True):
        table = group_table(found, (0.0, 1.0), size)
        failures, successes = table.multisets.T
        chances = binom.pmf(successes, size, p[:, None])
        along = table.advantages[:, 1] * successes * (1.0 - p[:, None]) - table.advantages[:, 0] * failures * p[:, None]
        squares = table.advantages[:, 1] ** 2 * successes + table.advantages[:, 0] ** 2 * failures
        mean = weights @ (chances * along).sum(axis=1) / size
        signal, noise = (weights @ (chances * part).sum(axis=1) / size**2 for part in (along**2, squares))
        power = law.square * (heavy_pilots.SIGNAL**2 * signal + noise)
        length = heavy_pilots.SIGNAL * law.mean * heavy_pilots.ALIGNED
        own, exact = (length * mean) ** 2, (length * gradient) ** 2
        values.append(own / (power / batch + (1.0 - 1.0 / batch) * own) if exact > 0.0 else 0.0)
    return np.array(values)
