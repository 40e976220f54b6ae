"""RLOO (Kool and others 2019, arXiv 2402.14740): the others' mean as a baseline, beside one baseline for all prompts, exactly.

In the controls the own reward is in the mean, or the constant is off.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import GRADED, POLICIES, expected_update, over, world
from simulations.statements import stated

CASES = over(policy=POLICIES, group_size=(2, 4, 8))


@check(stated("leave-one-out/unbiased"), cases=CASES, broken={"kernel": "dr_grpo"}, setting="{policy}, k = {group_size}")
def unbiased(policy, group_size, rng, kernel="rloo"):
    """The mean update and the gradient, with three rewards."""
    problem = world(policy, rng, GRADED)
    return expected_update(problem, kernel, group_size), gt.exact.gradient(problem)


def errors(problem, group_size, off=0.0):
    """Return the mean squared errors of leave-one-out, and of a constant baseline: the mean reward of all prompts."""
    constant = gt.objective(problem, problem.theta) + off
    bandit = gt.Bandit.from_law(problem.bandit.values - constant, problem.bandit.probabilities, problem.bandit.prompt_weights)
    less = gt.Problem(bandit, problem.policy, theta=problem.theta)
    sizes = {"batch_size": 1, "group_size": group_size}
    return (gt.gradient_mse(one, one.theta, kernel, **sizes) for one, kernel in ((problem, "rloo"), (less, "reinforce")))


@check(
    *stated("leave-one-out/below a moving average", "leave-one-out/one prompt"),
    cases=CASES,
    broken={"off": 0.7},
    sound={"unlike": True},
    setting="{policy}, k = {group_size}",
)
def beside_constant(policy, group_size, rng, off=0.0, unlike=False):
    """Prompts whose laws of rewards are drawn alike; in the sound case they are nearly solved, or nearly never."""
    several, one = world(policy, rng, prompts=3), world(policy, rng, prompts=1)
    if unlike:
        success = np.repeat([0.98, 0.01], 4).reshape(2, 4) + 0.01 * rng.random((2, 4))
        several = gt.Problem(gt.Bandit(success), gt.TabularSoftmax(2, 4), theta=several.theta[:1].repeat(8))
    ours, constant = errors(several, group_size)
    alone, oracle = errors(one, group_size, off)
    return {"leave-one-out/below a moving average": (ours, constant), "leave-one-out/one prompt": (oracle, alone)}
