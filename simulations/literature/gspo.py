"""GSPO (arXiv 2507.18071): one ratio a response, the geometric mean of its tokens', beside GRPO's ratios of tokens.

Objectives are summed over groups and differentiated along the imaginary axis. In the controls the ratios are exchanged.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import SHARED, TREE, UNEVEN, drawn, expected_update, orders, over, worst
from simulations.sequence.divergences import gradient
from simulations.sequence.parts import composed
from simulations.statements import stated

GROUP_SIZE, WIDTH = 4, 0.2


def signed_advantages(problem, theta):
    """Return each response's mean positive and mean negative part of its advantage in a group, (2, K)."""
    values, law = problem.bandit.values, problem.at(theta).reward_law[0]

    def parts(rewards):
        found = gt.advantages([rewards], "grpo")[0]
        return [[(part * (rewards == value)).mean() for value in values] for part in (found.clip(0.0), found.clip(None, 0.0))]

    by_reward = gt.exact.group_expectation(problem, theta, parts, group_size=GROUP_SIZE)[0] / law
    return by_reward @ problem.bandit.probabilities[0].T


def objective(problem, old, advantages, normalised, clipped):
    """Return the clipped objective of GSPO, or of GRPO, a function of token logs."""
    paths, logs = problem.policy.paths, old.token_log_probabilities

    def clip(ratios, positive):
        beyond = clipped & (ratios.real > 1.0 + WIDTH if positive else ratios.real < 1.0 - WIDTH)
        return np.where(beyond, 1.0 + WIDTH if positive else 1.0 - WIDTH, ratios)

    def value(now):
        total = 0.0
        for part, positive in zip(advantages, (True, False), strict=True):
            if normalised:
                seen = clip(np.exp(paths.along(now - logs) / paths.lengths), positive)
            else:
                seen = paths.along(clip(np.exp(now - logs), positive)) / paths.lengths
            total += (old.probabilities * part * seen).sum()
        return total

    return value


@check(
    *stated("gspo/gradient", "gspo/GRPO gradient", "gspo/importance sampling"),
    cases=over(kind=(TREE, UNEVEN, SHARED), clipped=(False, True)),
    broken={"exchanged": True},
    setting=lambda kind, clipped: f"{kind}, {'clipped' if clipped else 'no clip'}",
)
def gradients(kind, clipped, rng, exchanged=False):
    """The mean of each composed estimator, and the derivative of its objective; and what the whole ratio estimates."""
    problem = drawn(kind, rng)
    behaviour = problem.theta + 0.5 * rng.normal(size=problem.theta.size)
    old, advantages = problem.at(behaviour), signed_advantages(problem, behaviour)
    clip, sides = "by sign" if clipped else "none", {}
    for name, ratio in (("gspo/gradient", "geometric"), ("gspo/GRPO gradient", "token")):
        target = objective(problem, old, advantages, (ratio == "geometric") != exchanged, clipped)
        mean = expected_update(problem, composed("grpo", ratio, clip, "own length"), GROUP_SIZE, behaviour)
        sides[name] = (mean, gradient(problem, target, problem.theta))
    if not clipped:
        mean = expected_update(problem, composed("rloo", "geometric" if exchanged else "trajectory"), GROUP_SIZE, behaviour)
        sides["gspo/importance sampling"] = mean, gt.exact.gradient(problem)
    return sides


@check(stated("gspo/share"), cases=over(kind=(TREE, SHARED)), broken={"share": 1.0})
def share(kind, rng, share=0.5):
    """Small drifts: the corrections by GSPO's ratio and by the whole one, beside no ratio at all; two tokens a response."""
    problem = drawn(kind, rng)
    step = rng.normal(size=problem.theta.size)
    kernels = [composed("rloo", ratio) for ratio in ("geometric", "trajectory", "none")]

    def left(drift):
        own, whole, none = (expected_update(problem, one, GROUP_SIZE, problem.theta + drift * step) for one in kernels)
        return np.linalg.norm(own - none - share * (whole - none))

    return orders(left)[0], 2.0


@check(stated("gspo/variance"), cases=over(tokens=(2, 3)), broken={"power": 1.1}, setting="T = {tokens}")
def variance(tokens, rng, power=None):
    """Seek the two policies for which normalising helps least; in the control the ratio has a power above 1."""
    policy = gt.TokenTree(1, 2, tokens)

    def sides(x):
        old, now = np.split(x, 2)
        p, q = policy.probabilities(old)[0], policy.probabilities(now)[0]
        normalised = (q / p) ** (power or 1.0 / tokens)
        return p @ normalised**2 - (p @ normalised) ** 2, max(p @ (q / p) ** 2 - 1.0, 0.0)

    return worst(sides, [(-3.0, 3.0)] * (2 * policy.dimension), rng, compare="ratio")
