"""MaxRL (arXiv 2602.02710): what the mean score of the right answers climbs, a truncated logarithm of the success rate.

In the broken cases the order is off by one, the condition is failure, or groups without a right answer are left out.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.kernels import unregistered
from simulations.literature.drawn import POLICIES, climbing, expected_update, over, truncated, worked, world
from simulations.statements import stated


@unregistered("right_mean", parameters={"less": 0.0}, minimum_group_size=2, exchangeable=True)
def right_mean(batch, advantages):
    """A = Z n/c - less, c right of n; -less where none is."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        for i in range(batch.rewards.shape[1]):
            advantages[b, i] = (batch.rewards[b, i] / mean if mean > 0.0 else 0.0) - batch.parameters[0]


@check(stated("maxrl/theorem 1"), cases=over(policy=POLICIES), broken={"right": 0})
def conditional(policy, rng, right=1):
    """The mean score of a right answer, prompt by prompt."""
    problem = world(policy, rng, objective=gt.Objective.log_success(), width=None)
    point = problem.at()
    given = point.probabilities * problem.bandit.probabilities[..., right]
    given /= given.sum(axis=1, keepdims=True)
    # E[S | right] = sum_k given_k grad log pi_k is a policy gradient with the rewards given_k/pi_k.
    rewards, where = np.unique(given / point.probabilities, return_inverse=True)
    law = np.eye(len(rewards))[where.reshape(given.shape)]
    scored = gt.Problem(gt.Bandit.from_law(rewards, law, problem.bandit.prompt_weights), problem.policy, theta=problem.theta)
    return gt.exact.gradient(scored), gt.exact.gradient(problem)


@check(
    *stated("maxrl/theorem 2", "maxrl/control variate", "maxrl/theorem 5", "maxrl/expansion"),
    cases=over(policy=POLICIES, size=(2, 5)),
    broken={"off": 1},
    setting="{policy}, N = {size}",
)
def orders(policy, size, rng, off=0):
    """The mean updates beside the gradients of truncated logarithms; the control variate's mistake is to skip groups."""
    problem = world(policy, rng, width=None)
    kernels = (right_mean, "max_rl" if off else right_mean.with_parameters(less=1.0), "max_rl")
    plain, varied, skipping = (expected_update(problem, one, size) for one in kernels)
    shorter, longer, own = (climbing(problem, truncated(order)) for order in (size - 1 + off, size + off, size))
    passes = sum(climbing(problem, gt.Objective.best_of(k)) / k for k in range(1, size + 1 + off))
    return {
        "maxrl/theorem 2": (plain, longer),
        "maxrl/control variate": (varied, own),
        "maxrl/theorem 5": (skipping, shorter),
        "maxrl/expansion": (passes, own),
    }


@check(stated("maxrl/three rewards"), cases=over(draw=range(4)), broken={"name": "rloo"}, setting="draw {draw}")
def around(rng, name="max_rl"):
    """Groups of two, rewards 0 < y < z."""
    y, z = np.sort(rng.random(2))
    return worked(name, (0.0, y, z), 2), (z - y) / (z + y)
