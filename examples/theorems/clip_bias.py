"""Spurious rewards (arXiv 2506.10947): rewards that say nothing move the policy through the clip alone.

In the broken cases the clip acts where there is said to be none, or on one side only.
"""

import numpy as np
from scipy.stats import binom

import grpo_theory as gt

SOURCE = "arXiv 2506.10947, derivation of the clipping bias"
ZERO = gt.Statement(
    "spurious/no clip", SOURCE, "with rewards independent of the response and no clip, the mean update is 0", "identity"
)
BIAS = gt.Statement(
    "spurious/clip", SOURCE, "with it, it is mu E_old[R grad log pi (1{R < 0.8} - 1{R > 1.2})], mu = E|A|/2", "identity"
)
PRIOR = gt.Statement(
    "spurious/likely", "arXiv 2506.10947, clipping bias", "and it raises the probability of the likeliest response", "upper bound"
)
CLIPPED = gt.compose("grpo_clipped", advantage="grpo", ratio="token", clip="by sign")
WHOLE = gt.compose("grpo_whole_ratio", advantage="grpo", ratio="token")
EPSILON = dict(gt.estimators()["grpo"].advantage.parameters)["epsilon"]
GROUP = 8


@gt.check(ZERO, BIAS, PRIOR, cases=[{"draw": number} for number in range(6)], broken={"wrong": True}, setting="draw {draw}")
def moved(rng, wrong=False):
    """Random old and new policies over six responses, each of which is right with probability 1/2."""
    old = 1.5 * rng.normal(size=6)
    new = old + 0.5 * rng.normal(size=6)
    problem = gt.Problem(gt.Bandit(np.full((1, 6), 0.5)), gt.TabularSoftmax(1, 6), theta=new)
    before, now = problem.at(old).probabilities[0], problem.at(new).probabilities[0]
    clipped, whole = (
        gt.gradient_mean(problem, new, one, batch_size=1, group_size=GROUP, behaviour=old) for one in (CLIPPED, WHOLE)
    )
    # E|A| of c right responses of G: 2 c (G-c)/G^2 over the deviation, c binomial.
    c = np.arange(GROUP + 1)
    spread = np.sqrt(c * (GROUP - c) / GROUP / (GROUP - 1)) + EPSILON
    mu = (binom.pmf(c, GROUP, 0.5) * 2.0 * c * (GROUP - c) / GROUP**2 / spread).sum() / 2.0
    low, high = now / before < 0.8, now / before > 1.2
    weights = now * (low if wrong and high.any() else 1.0 * low - high if not wrong else -1.0 * low)
    told = mu * (weights - weights.sum() * now)
    likeliest = int(before.argmax())
    rise = now[likeliest] * (clipped[likeliest] - now @ clipped)
    return {
        ZERO.id: (clipped if wrong else whole, np.zeros(6)),
        BIAS.id: (clipped, told),
        PRIOR.id: (abs(rise) if wrong else -rise, 0.0, {"ratio of the likeliest": now[likeliest] / before[likeliest]}),
    }
