"""What the planner's group size for a run loses where rewards are graded, in worlds and a network that its own leave out.

As `planned_run`, with logs of graded rewards. The worlds that judge have three times as many answers as the planner's, and
rewards that its ladder of six has to put together. Their prompts' laws of rewards are not of the family that it fits. In the
control all groups have 32 responses. In that of a usual size, groups four times as large stand in for the planner's.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.run_worlds import WORLDS
from simulations.plan import run_regret
from simulations.plan.run_regret import ANSWERS as FEW
from simulations.plan.run_regret import LOGGED, PROMPTS
from simulations.statements import stated

REGRET = stated("plan/graded run/regret")
AGAINST = {size: stated(f"plan/graded run/against {size}") for size in (8, 16)}
SAME = stated("plan/graded run/no better than 4")
KINDS = (0, 2, 3)
"""The places of the kinds of worlds that judge: prompts that do not touch each other, that compete, and that teach each other."""
ANSWERS = 24
"""Of each prompt: three times the planner's."""
RATES = {"thirds": (0.5, 1e-3), "many": (0.5, 0.05)}
"""Mean rewards at the start are spread evenly in their logarithm between these."""
PARTS = 3
"""Of "thirds": a response gets a third for each part that it solves, each at the same rate."""
VALUES, CONCENTRATION = 20, 10.0
"""Of "many": so many rewards, evenly spaced, at the quantiles of a beta law with so large a sum of its parameters."""
NETWORK, WIDTH = "network", 16
SEED = 20261129
CASES = (("thirds", "trl_grpo", 64), ("many", "rloo", 40), (NETWORK, "trl_grpo", 40))
QUICK_CASES = (("thirds", "trl_grpo", 8), (NETWORK, "trl_grpo", 8))


def start_laws(start):
    """Return the rewards (L,) and the law of each prompt's at the start, shape (M, L), the largest mean first."""
    from scipy.stats import beta, binom  # slow to import, and seldom wanted

    means = np.geomspace(*RATES[start], PROMPTS)[:, None]
    if start == "thirds":
        successes = np.arange(PARTS + 1)
        return successes / PARTS, binom.pmf(successes, PARTS, means)
    edges = np.linspace(0.0, 1.0, VALUES + 1)
    shares = np.maximum(np.diff(beta.cdf(edges, CONCENTRATION * means, CONCENTRATION * (1.0 - means)), axis=1), 1e-9)
    return np.linspace(0.0, 1.0, VALUES), shares / shares.sum(axis=1, keepdims=True)


def levels(rng):
    """Return rewards from 0 to 1 of each prompt's answers, in its own order."""
    order = rng.permuted(np.tile(np.arange(FEW), (PROMPTS, 1)), axis=1)
    return gt.Bandit.from_law(np.linspace(0.0, 1.0, FEW), np.eye(FEW)[order])


def problems(start, draw):
    """Return a draw of what runs are judged on, by name: a world of some kinds, or the network."""
    if start == NETWORK:
        return {start: run_regret.network(WIDTH, [SEED, WIDTH, draw], levels)}
    values, shares = start_laws(start)
    return {WORLDS[kind].title: WORLDS[kind]._replace(answers=ANSWERS).graded(values, shares, draw) for kind in KINDS}


def drawn_log(problem, rng):
    """Return a log of as many prompts as a log has, each with the law of one of the problem's at its start."""
    prompts, responses = LOGGED
    bandit = problem.bandit
    laws = np.einsum("mk,mkl->ml", problem.policy.probabilities(problem.theta), bandit.probabilities)
    counts = rng.multinomial(responses, (laws / laws.sum(axis=1, keepdims=True))[rng.integers(len(laws), size=prompts)])
    rewards = np.repeat(np.tile(bandit.values, prompts), counts.ravel())
    return RewardCounts.from_rewards(np.repeat(np.arange(prompts), responses), rewards)


cells, simulate, rows, claims = run_regret.study_of(problems, drawn_log, CASES, QUICK_CASES, {NETWORK}, REGRET, AGAINST, SAME)
