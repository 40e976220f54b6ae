"""Spurious rewards (arXiv 2506.10947): rewards that say nothing move the policy through the clip alone.

In the broken cases the clip acts where there is said to be none, or mu is that of groups with one more response.
"""

import numpy as np

import grpo_theory as gt

PAPER = "arXiv 2506.10947, clipping bias"
ZERO = gt.Statement("spurious/no clip", PAPER, "if rewards ignore the response, the mean update without clip is 0", "identity")
TEXT = "with it, it is mu E_old[R grad log pi (1{R < 0.8} - 1{R > 1.2})], mu = E|A|/2"
BIAS = gt.Statement("spurious/clip", PAPER, TEXT, "identity")
PRIOR = gt.Statement("spurious/likely", PAPER, "and it raises the probability of the likeliest response", "upper bound")
CLIPPED, WHOLE = (gt.compose(f"grpo, clip {clip}", advantage="grpo", ratio="token", clip=clip) for clip in ("by sign", "none"))


@gt.check(ZERO, BIAS, PRIOR, cases=[{"draw": number} for number in range(6)], broken={"wrong": True}, setting="draw {draw}")
def moved(rng, wrong=False):
    """Random old and new policies over six responses, each of which is right with probability 1/2."""
    old = 1.5 * rng.normal(size=6)
    problem = gt.Problem(gt.Bandit(np.full((1, 6), 0.5)), gt.TabularSoftmax(1, 6), theta=old + 0.5 * rng.normal(size=6))
    clipped, whole = (gt.gradient_mean(problem, None, one, batch_size=1, group_size=8, behaviour=old) for one in (CLIPPED, WHOLE))
    size = gt.exact.group_expectation(problem, None, lambda z: np.abs(gt.advantages([z], "grpo")).mean(), group_size=8 + wrong)
    before, now = problem.at(old).probabilities[0], problem.at().probabilities[0]
    sides = 1.0 * (now < 0.8 * before) - (now > 1.2 * before)
    likeliest = gt.observe(problem, problem.theta, gt.Observable.chance(before.argmax()))
    rise = likeliest.gradient @ clipped
    return {
        ZERO.id: (clipped if wrong else whole, np.zeros(6)),
        BIAS.id: (clipped, size[0] / 2.0 * (now * sides) @ problem.policy.scores(problem.theta)[0]),
        PRIOR.id: (abs(rise) if wrong else -rise, 0.0, {"ratio of the likeliest": likeliest.value / before.max()}),
    }
