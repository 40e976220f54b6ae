"""MaxRL (arXiv 2602.02710): what the mean score of the right answers climbs, a truncated logarithm of the success rate.

In the broken cases the order is off by one, the condition is failure, or groups without a right answer are left out.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.kernels import unregistered
from simulations.literature.worlds import POLICIES, climbing, drawn, truncated, worked
from simulations.statements import stated

CASES = [{"policy": policy, "size": size} for policy in POLICIES for size in (2, 5)]


@unregistered("right_mean", parameters={"less": 0.0}, minimum_group_size=2, exchangeable=True)
def right_mean(batch, advantages):
    """A = Z n/c - less, c right of n; -less where none is."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        for i in range(batch.rewards.shape[1]):
            advantages[b, i] = (batch.rewards[b, i] / mean if mean > 0.0 else 0.0) - batch.parameters[0]


@check(stated("maxrl/theorem 1"), cases=[{"policy": one} for one in POLICIES], broken={"right": 0}, setting="{policy}")
def conditional(policy, rng, right=1):
    """The mean score of a right answer, prompt by prompt."""
    problem = drawn(policy, rng, objective=gt.Objective.log_success())
    point = problem.at(problem.theta)
    given = point.probabilities * problem.bandit.probabilities[..., right]
    given /= given.sum(axis=1, keepdims=True)
    # E[S | right] = sum_k given_k grad log pi_k is a policy gradient with the rewards given_k/pi_k.
    rewards, where = np.unique(given / point.probabilities, return_inverse=True)
    law = np.eye(len(rewards))[where.reshape(given.shape)]
    scored = gt.Problem(gt.Bandit.from_law(rewards, law, problem.bandit.prompt_weights), problem.policy, theta=problem.theta)
    return gt.exact.gradient(scored, problem.theta), gt.exact.gradient(problem, problem.theta)


@check(
    *stated("maxrl/theorem 2", "maxrl/control variate", "maxrl/theorem 5", "maxrl/expansion"),
    cases=CASES,
    broken={"off": 1},
    setting="{policy}, N = {size}",
)
def orders(policy, size, rng, off=0):
    """The mean updates beside the gradients of truncated logarithms; the control variate's mistake is to skip groups."""
    problem = drawn(policy, rng)

    def slope(objective):
        return gt.exact.gradient(climbing(problem, objective), problem.theta)

    def mean(one):
        return gt.gradient_mean(problem, problem.theta, one, batch_size=1, group_size=size)

    passes = sum(slope(gt.Objective.best_of(k)) / k for k in range(1, size + 1 + off))
    return {
        "maxrl/theorem 2": (mean(right_mean), slope(truncated(size + off))),
        "maxrl/control variate": (mean("max_rl" if off else right_mean.with_parameters(less=1.0)), slope(truncated(size))),
        "maxrl/theorem 5": (mean("max_rl"), slope(truncated(size - 1 + off))),
        "maxrl/expansion": (passes, slope(truncated(size))),
    }


@check(stated("maxrl/three rewards"), cases=[{"draw": draw} for draw in range(4)], broken={"name": "rloo"}, setting="draw {draw}")
def around(rng, name="max_rl"):
    """Groups of two, rewards 0 < y < z."""
    y, z = np.sort(rng.random(2))
    return worked(name, (0.0, y, z), 2), (z - y) / (z + y)
