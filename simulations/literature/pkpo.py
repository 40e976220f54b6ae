"""PKPO (arXiv 2505.15201): unbiased estimates of pass@k and of the best of k, and of their gradients.

In the broken cases subsets are drawn with replacement, of another size, or the baseline knows the response itself.
"""

from math import comb

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.kernels import unregistered
from simulations.literature.drawn import BINARY, GRADED, POLICIES, expected_update, world
from simulations.literature.subsets import baselines, best_of_subsets
from simulations.statements import stated

CASES = [{"policy": policy, "n": n, "k": k} for policy in POLICIES for n, k in ((4, 2), (6, 4))]


@unregistered("pkpo_binary", parameters={"k": 2.0, "own": 0.0}, minimum_group_size=2, exchangeable=True)
def pkpo_binary(batch, advantages):
    """A = k if right, k (1 - C(n-1-c, k-1)/C(n-1, k-1)) if wrong, c right of n; `own` draws from all n."""
    k, drawn_from = int(batch.parameters[0]), batch.rewards.shape[1] - 1 + batch.parameters[1]
    for b in range(batch.rewards.shape[0]):
        wrong = drawn_from - batch.rewards[b].sum()
        none = 1.0
        for j in range(k - 1):
            none *= max(wrong - j, 0.0) / (drawn_from - j)
        for i in range(batch.rewards.shape[1]):
            advantages[b, i] = k if batch.rewards[b, i] > 0.5 else k * (1.0 - none)


@check(*stated("pkpo/theorem 1", "pkpo/theorem 3"), cases=CASES, broken={"replaced": True})
def values(policy, n, k, rng, replaced=False):
    """The means over all groups; with replacement a subset may hold a response twice."""

    def passed(rewards):
        c = int(rewards.sum())
        return 1.0 - ((1.0 - c / n) ** k if replaced else comb(n - c, k) / comb(n, k))

    def largest(rewards):
        i = np.arange(n)
        ways = ((i + 1) ** k - i**k) / n**k if replaced else np.array([comb(j, k - 1) for j in i]) / comb(n, k)
        return ways @ rewards

    found = {}
    for name, levels, statistic in (("pkpo/theorem 1", BINARY, passed), ("pkpo/theorem 3", GRADED, largest)):
        problem = world(policy, rng, levels, objective=gt.Objective.best_of(k), width=None)
        means = gt.exact.group_expectation(problem, problem.theta, statistic, group_size=n)
        found[name] = problem.bandit.prompt_weights @ means, gt.objective(problem, problem.theta)
    return found


@check(*stated("pkpo/theorem 2", "pkpo/theorem 4", "pkpo/leave-one-out", "pkpo/k minus one"), cases=CASES, broken={"own": 1.0})
def gradients(policy, n, k, rng, own=0.0):
    """The mean updates beside the gradient; the mistake of Theorem 4 is the size of the subsets."""
    best, named = gt.Objective.best_of(k), baselines(k, n)
    binary, graded = (world(policy, rng, levels, objective=best, width=None) for levels in (BINARY, GRADED))
    tried = {
        "pkpo/theorem 2": (binary, pkpo_binary.with_parameters(k=k, own=own)),
        "pkpo/theorem 4": (graded, best_of_subsets.with_parameters(k=k - own, share=0.0)),
        "pkpo/leave-one-out": (graded, named["leave-one-out"].with_parameters(own=own)),
        "pkpo/k minus one": (graded, named["k minus one"].with_parameters(own=own)),
    }
    return {name: (expected_update(problem, one, n), gt.exact.gradient(problem)) for name, (problem, one) in tried.items()}


def traces(values, theta, n, k):
    """Return the variance of each estimator, by name, where each response has a reward of its own."""
    bandit = gt.Bandit.from_law(values, np.eye(len(values))[None])
    problem = gt.Problem(bandit, gt.TabularSoftmax(1, len(values)), theta=theta)
    sizes = {"batch_size": 1, "group_size": n}
    return {name: gt.gradient_law(problem, problem.theta, one, **sizes).trace for name, one in baselines(k, n).items()}


@check(
    *stated("pkpo/variance", "pkpo/lowest", "pkpo/variance, leave-one-out"),
    cases=[
        {"name": "two even answers", "values": BINARY, "theta": (0.0, 0.0), "n": 3, "k": 2},
        {"name": "a likely middle", "values": (0.0, 0.5, 1.0), "theta": (-2.0, 2.0, -2.0), "n": 5, "k": 4},
        {"name": "a rare best", "values": (0.0, 0.5, 1.0), "theta": (1.0, 1.0, -2.0), "n": 6, "k": 2},
    ],
    broken={"times": 20.0},
    sound={"values": BINARY, "theta": (1.0, -1.0), "n": 6, "k": 4},
    setting="{name}, n = {n}, k = {k}",
)
def lower(values, theta, n, k, times=1.0):
    """The traces of the covariance; in the broken case the baseline's is that of twenty times as few prompts."""
    found = traces(values, theta, n, k)
    least = times * found["k minus one"]
    return {
        "pkpo/variance": (least, found["plain"]),
        "pkpo/lowest": (least, found["leave-one-out"]),
        "pkpo/variance, leave-one-out": (times * found["leave-one-out"], found["plain"]),
    }
