"""Mirror descent with the mean reward for tau log Z (arXiv 2602.05933): where Kimi's squared loss leads, and what that maximises.

The loss is minimised over all policies. In the controls the policy is that of mirror descent proper, or the weight is doubled.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import lambertw

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import TABLE, TREE, drawn, expected_update, over, score_mean, worst
from simulations.sequence.parts import composed
from simulations.statements import stated


def solution(p, rewards, tau):
    """Return log pi/pi_0 = a/tau - W(w exp(a/tau)), a = r - E_0 r, and the weight w with which pi is normalised."""
    scaled = (rewards - p @ rewards) / tau

    def logs(weight):
        return scaled - lambertw(weight * np.exp(scaled)).real

    def excess(weight):
        return p @ np.exp(logs(weight)) - 1.0

    # Of w = 0 the sum is Z exp(-E_0 r/tau), at least 1; with w it falls to 0.
    weight = brentq(excess, 0.0, 10.0 * np.exp(scaled.max()), xtol=1e-15, rtol=1e-14) if excess(0.0) > 0.0 else 0.0
    return logs(weight), weight


@check(
    *stated("pmd-mean/solution", "pmd-mean/regulariser"),
    cases=over(kind=(TABLE, TREE), tau=(0.2, 1.0)),
    broken={"factor": 2.0},
)
def stationary(kind, tau, rng, factor=1.0):
    """The gradient of the loss, and that of E r - tau KL - tau w chi^2/2, at the solution, which a tree can take, too."""
    problem = drawn(kind, rng)
    old, rewards = problem.at().probabilities, problem.bandit.mean_reward
    logs, weight = solution(old[0], rewards[0], tau)
    shifted = np.log(old) + (logs if factor == 1.0 else rewards / tau)
    theta = problem.policy.paths.conditionals(shifted)[0]
    tied = gt.Problem(problem.bandit, problem.policy, kl=gt.KL(tau, old), theta=theta)
    now = tied.at(theta).probabilities
    # The loss reads whole responses, so that on a tree its gradient is not a trainer's, which sums over tokens.
    loss = score_mean(tied, theta, old * (rewards - (old * rewards).sum() - tau * np.log(now / old)))
    if kind == TABLE:
        loss = expected_update(tied, composed("rloo", "none", kl="k2 in loss"), 4, problem.theta)
    penalised = gt.exact.gradient(tied) - factor * tau * weight * score_mean(tied, theta, now * now / old)
    return {"pmd-mean/solution": (loss, np.zeros_like(loss)), "pmd-mean/regulariser": (penalised, np.zeros_like(loss))}


def steps(rate, tau):
    """Return the solution's log pi/pi_0 of right responses, mirror descent's, and the weight, for rewards 0 and 1."""
    p, rewards = np.array([1.0 - rate, rate]), np.array([0.0, 1.0])
    logs, weight = solution(p, rewards, tau)
    return logs[1], 1.0 / tau - np.logaddexp.reduce(np.log(p) + rewards / tau), weight


@check(
    *stated("pmd-mean/weight", "pmd-mean/largest ratio", "pmd-mean/low rewards", "pmd-mean/success"),
    cases=over(tau=(0.05, 1.0)),
    broken={"wrong": True},
    sound={"tau": 0.05},
    setting="tau = {tau}, rewards 0 and 1, worst case found",
)
def conservative(tau, rng, wrong=False):
    """Seek the success rate where the solution steps too far, and two rates of which the lower one steps relatively farther."""
    longer = 1.05 if wrong else 1.0

    def weight(x):
        return (1.0 if wrong else -1.0) * steps(x[0], tau)[2], 0.0

    def ratio(x):
        own, exact, _ = steps(x[0], tau)
        return longer * own, exact

    def success(x):
        own, exact, _ = steps(x[0], tau)
        return longer * x[0] * np.exp(own), x[0] * np.exp(exact)

    def shares(x):
        low, high = (own / exact for own, exact, _ in (steps(rate, tau) for rate in np.sort(x)))
        return (high, low) if wrong else (low, high)

    box = [(1e-3, 1.0 - 1e-3)] * 2
    names = {"weight": weight, "largest ratio": ratio, "low rewards": shares, "success": success}
    return {f"pmd-mean/{name}": worst(sides, box[: 1 + (sides is shares)], rng, climbs=2) for name, sides in names.items()}
