"""Kimi k1.5 (arXiv 2501.12599): policy mirror descent by a squared loss, its optimum, its gradient, and its guess at tau log Z.

Rewards are a response's mean reward. In the controls the temperature is wrong, or the group's mean lacks the own reward.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope
from grpo_theory.harness import check
from simulations.literature.drawn import FEATURES, TABLE, TREE, UNEVEN, drawn, expected_update, over, score_mean, worst
from simulations.sequence.divergences import gradient
from simulations.sequence.parts import composed
from simulations.statements import stated


def log_partition(tau, p, rewards):
    """Return tau log E_p exp(r/tau)."""
    return tau * np.logaddexp.reduce(np.log(p) + rewards / tau)


@check(
    *stated("kimi/closed form", "kimi/constraint"),
    cases=over(kind=(TABLE, TREE, UNEVEN), tau=(0.3, 2.0)),
    broken={"off": 1.01},
)
def optimum(kind, tau, rng, off=1.0):
    """The maximiser by Newton's method, from the old policy."""
    free = drawn(kind, rng)
    old, rewards = free.at().probabilities, free.bandit.mean_reward
    problem = gt.Problem(free.bandit, free.policy, kl=gt.KL(tau, old), theta=free.theta)
    best = problem.at(gt.find_optimum(problem, problem.theta)).probabilities
    told = old * np.exp((rewards - log_partition(off * tau, old[0], rewards[0])) / (off * tau))
    return {
        "kimi/closed form": (best, told / told.sum()),
        "kimi/constraint": (rewards - tau * np.log(best / old), np.full_like(old, log_partition(off * tau, old[0], rewards[0]))),
    }


def surrogate(problem, old, tau, guess):
    """Return E_0 (r - guess - tau log pi/pi_0)^2/(2 tau), a function of token logs."""
    paths, rewards = problem.policy.paths, problem.bandit.mean_reward
    return lambda now: (old * (rewards - guess - tau * (paths.along(now) - np.log(old))) ** 2).sum() / (2.0 * tau)


@check(
    *stated("kimi/gradient", "kimi/samples", "kimi/samples, corrected"),
    cases=over(kind=(TABLE, FEATURES), size=(2, 8)),
    broken={"wrong": True},
    sound={"own": False},
    setting="{kind}, k = {size}",
)
def update(kind, size, rng, wrong=False, own=True, tau=0.7):
    """The mean of the printed update with k samples of the old policy; in the sound case the own reward is not in the mean."""
    free = drawn(kind, rng)
    theta, old = free.theta + 0.5 * rng.normal(size=free.theta.size), free.at().probabilities
    problem = gt.Problem(free.bandit, free.policy, kl=gt.KL(tau, old), theta=theta)
    rewards, mean = problem.bandit.mean_reward, float((old * problem.bandit.mean_reward).sum())
    ratios = np.log(problem.at(theta).probabilities / old)
    printed = score_mean(problem, theta, old * (rewards - mean)) - tau * score_mean(problem, theta, old * ratios)
    kernel = composed("dr_grpo" if own else "rloo", "none", kl="k3 in loss" if wrong else "k2 in loss")
    sampled = expected_update(problem, kernel, size, free.theta)
    descent = -gradient(problem, surrogate(problem, old, tau, mean + 1.0 * wrong), theta)
    share = 1.0 - 1.0 / size if own else 1.0
    corrected = -share * gradient(problem, surrogate(problem, old, tau / share, mean), theta)
    return {
        "kimi/gradient": (printed, descent),
        "kimi/samples": (sampled, descent),
        "kimi/samples, corrected": (sampled, corrected),
    }


@check(*stated("kimi/limit", "kimi/limit, constant"), cases=over(kind=(TABLE, TREE)), broken={"power": 2.0})
def limit(kind, rng, power=1.0):
    """The guess at tau log Z: how fast the mean reward becomes right; in the control the square of the reward is meant."""
    problem = drawn(kind, rng)
    p, r = problem.at().probabilities[0], problem.bandit.mean_reward[0]
    temperatures = np.array([8.0, 16.0, 32.0, 64.0])
    gaps = np.array([log_partition(tau, p, r) for tau in temperatures]) - p @ r**power
    variance = p @ r**2 - (p @ r) ** 2
    return {
        "kimi/limit": (log_log_slope(temperatures, np.abs(gaps))[0], -1.0),
        "kimi/limit, constant": (2.0 * temperatures[-1] * gaps[-1] / variance, 1.0),
    }


@check(
    *stated("kimi/mean below", "kimi/gap"),
    cases=over(tau=(0.1, 1.0)),
    broken={"factor": 0.5, "above": True},
    setting="tau = {tau}, worst case found",
)
def gap(tau, rng, factor=1.0, above=False):
    """Seek the reward law of three values in [0, 1] with the largest and the least gap."""

    def sides(x):
        p = np.exp(x[3:] - np.logaddexp.reduce(x[3:]))
        return log_partition(tau, p, x[:3]) - p @ x[:3], factor * min(1.0 / (8.0 * tau), 1.0)

    box = [(0.0, 1.0)] * 3 + [(-12.0, 12.0)] * 3
    return {
        "kimi/mean below": worst(lambda x: (sides(x)[0] * (1.0 if above else -1.0), 0.0), box, rng, climbs=2),
        "kimi/gap": worst(sides, box, rng, climbs=2, compare="ratio"),
    }
