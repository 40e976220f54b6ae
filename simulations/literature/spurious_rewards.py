"""Spurious rewards (arXiv 2506.10947): rewards that say nothing move the policy through the clip alone.

Every response is right with probability 1/2. The policy has left the one that sampled. In one control the clip acts where there
is said to be none. In others advantages are those of a larger group, or the response is less likely than is said.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import KINDS, drawn, expected_update, over, worst
from simulations.sequence.divergences import expected, gradient
from simulations.sequence.parts import composed
from simulations.statements import stated

GROUP_SIZE, WIDTH = 8, 0.2
CLIPPED = composed("grpo", "token", "by sign")


def size(rewards):
    """Return the mean of |A| of a group's advantages."""
    return np.abs(gt.advantages([rewards], "grpo")).mean()


@check(*stated("spurious/no clip", "spurious/clip", "spurious/pulls back"), cases=over(kind=KINDS), broken={"wrong": True})
def moved(kind, rng, wrong=False):
    """The mean update without a clip, with it, and what it descends."""
    problem = drawn(kind, rng, success=0.5)
    behaviour = problem.theta + 0.6 * rng.normal(size=problem.theta.size)
    now, old, paths = problem.at(), problem.at(behaviour), problem.policy.paths
    clipped, whole = (expected_update(problem, one, GROUP_SIZE, behaviour) for one in (CLIPPED, composed("grpo", "token")))
    mu = 0.5 * gt.exact.group_expectation(problem, problem.theta, size, group_size=GROUP_SIZE + wrong)[0]
    ratio = now.token_probabilities / old.token_probabilities
    sign = 1.0 * (ratio < 1.0 - WIDTH) - (ratio > 1.0 + WIDTH)
    told = now.tangent.adjoint(paths.centre(paths.collect(old.probabilities) * ratio * sign, now.token_probabilities))

    def outside(logs):
        """Return the distance of a token's ratio from the clip's range."""
        moved = np.exp(logs - old.token_log_probabilities)
        low, high = 1.0 - WIDTH - moved, moved - 1.0 - WIDTH
        return np.where(low.real > 0.0, low, 0.0) + np.where(high.real > 0.0, high, 0.0)

    pull = gradient(problem, expected(problem, old, outside), problem.theta)
    return {
        "spurious/no clip": (clipped if wrong else whole, np.zeros_like(whole)),
        "spurious/clip": (clipped, mu * told),
        "spurious/pulls back": (clipped, -mu * pull),
    }


@check(
    *stated("spurious/threshold", "spurious/high prior"),
    cases=over(responses=(2, 3)),
    broken={"prior": 0.5},
    sound={"rising": False},
    setting="{responses} responses, worst case found",
)
def high_prior(responses, rng, prior=0.85, rising=True):
    """Seek where the clip moves the likely response down, by its own term and in all; in the sound case it has fallen.

    The prior of the paper's example is above 1/(1 + WIDTH).
    """
    old = np.array([prior, *np.full(responses - 1, (1.0 - prior) / (responses - 1))])
    problem = gt.Problem(gt.Bandit(np.full((1, responses), 0.5)), gt.TabularSoftmax(1, responses))

    def now(step):
        theta = np.log(old) + step * (1.0 if rising else -1.0) * np.eye(responses)[0]
        return theta, problem.at(theta).probabilities[0]

    def threshold(x):
        return now(x[0])[1][0] / prior, 1.0 + WIDTH

    def lowered(x):
        theta, p = now(x[0])
        mean = gt.gradient_mean(problem, theta, CLIPPED, batch_size=1, group_size=GROUP_SIZE, behaviour=np.log(old))
        return -p[0] * (mean[0] - p @ mean), 0.0

    box = [(0.0, 2.0)]
    return {"spurious/threshold": worst(threshold, box, rng), "spurious/high prior": worst(lowered, box, rng)}
