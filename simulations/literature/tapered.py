"""Tapered off-policy REINFORCE (arXiv 2503.14286): the baseline as a mixture of data, and a bounded objective, exactly.

Responses are right, with reward 1, or wrong, with -1, and come from another policy mu. In the controls the baseline has the other
sign, or the truncated ratio does not fall to 0.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import POLICIES, over, policy_of, worst
from simulations.sequence.divergences import gradient
from simulations.statements import stated

DRAWS = over(policy=POLICIES, draw=range(3))


def drawn(kind, rng):
    """Return a problem with two right and two wrong responses, its rewards of 1 and -1, and mu."""
    policy, rewards = policy_of(kind, rng, width=5), rng.permutation([1.0, 1.0, -1.0, -1.0])
    problem = gt.Problem(gt.Bandit((rewards[None] + 1.0) / 2.0), policy, theta=rng.normal(size=policy.dimension))
    return problem, rewards, rng.dirichlet(np.ones(4))


@check(stated("topr/baseline"), cases=DRAWS, broken={"sign": -1.0}, setting="{policy}, draw {draw}")
def baseline(policy, rng, sign=1.0):
    """The naive update with a baseline, and without one on data with the effective share of right responses."""
    problem, rewards, mu = drawn(policy, rng)
    scores, c, right = problem.policy.scores(problem.theta)[0], rng.uniform(-1.0, 1.0), rewards > 0.0
    p = mu[right].sum()
    share = p * (1.0 - sign * c) / (1.0 + sign * c * (1.0 - 2.0 * p))
    mixed = np.where(right, share * mu / p, (1.0 - share) * mu / (1.0 - p))
    return (mu * (rewards - c)) @ scores, (1.0 + c * (1.0 - 2.0 * p)) * (mixed * rewards) @ scores


def objective(ratios, rewards, mu, floor=0.0, importance=False):
    """Return sum mu R f(ratio): log pi or the ratio if right, else f(1) = 1 and f'(x) = [x]/x, with x cut at floor and 1."""
    x = ratios.real
    below = np.where(x < floor, floor * (1.0 + np.log(ratios / max(floor, 1e-300))), ratios)
    wrong = np.where(x < 1.0, below, 1.0 + np.log(ratios))
    return (mu * rewards * np.where(rewards > 0.0, ratios if importance else np.log(ratios * mu), wrong)).sum()


@check(stated("topr/objective"), cases=DRAWS, broken={"importance": True}, setting="{policy}, draw {draw}")
def update(policy, rng, importance=False):
    """TOPR's update, and the derivative of that objective."""
    problem, rewards, mu = drawn(policy, rng)
    along, ratios = problem.policy.paths.along, problem.at().probabilities[0] / mu
    tapered = np.where(rewards > 0.0, 1.0, np.clip(ratios, 0.0, 1.0))

    def climbed(logs):
        return objective(np.exp(along(logs)[0]) / mu, rewards, mu, importance=importance)

    return (mu * tapered * rewards) @ problem.policy.scores(problem.theta)[0], gradient(problem, climbed, problem.theta)


@check(stated("topr/bounded"), cases=over(draw=range(3)), broken={"floor": 0.5}, setting="draw {draw}")
def bounded(rng, floor=0.0):
    """The largest objective that a search finds, logits up to 30 in size."""
    problem, rewards, mu = drawn("tabular", rng)

    def sides(theta):
        return objective(problem.at(theta).probabilities[0] / mu, rewards, mu, floor), 0.0

    return worst(sides, [(-30.0, 30.0)] * 4, rng, climbs=8, starts=256)
