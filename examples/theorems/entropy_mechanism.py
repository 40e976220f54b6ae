"""The entropy mechanism (arXiv 2505.22617): a policy-gradient step changes the entropy by -eta Cov(log pi, pi A), to first order.

The derivative of the entropy along each step is exact. In the broken cases each gradient has the other's covariance, or the
covariance the other sign.
"""

import numpy as np

import grpo_theory as gt

PAPER, DRAWS = "arXiv 2505.22617, Theorem", {"cases": [{"draw": number} for number in range(3)], "setting": "draw {draw}"}
TEXTS = "to first order a state's entropy changes by -eta Cov(log pi, pi A)", "with the natural gradient by -eta Cov(log pi, A)"
PLAIN, NATURAL = (gt.Statement(f"entropy/theorem {n}", f"{PAPER} {n}", TEXTS[n - 1], "identity") for n in (1, 2))
PRINTED = gt.Statement("entropy/theorem 1 on a tree", f"{PAPER} 1", "and so does that of the second state", "identity")
VISITS = "entropy/theorem 1 on a tree, corrected", f"{PAPER} 1", "with the share of visits before the covariance"
CORRECTED = gt.Statement(*VISITS, "identity", whose="correction")


def covariance(p, weighted):
    """Return the covariance with log p."""
    return np.cov(np.log(p), weighted, ddof=0, aweights=p)[0, 1]


@gt.check(PLAIN, NATURAL, **DRAWS, broken={"order": -1})
def one_state(rng, order=1):
    """The softmax of six answers."""
    problem = gt.Problem(gt.Bandit(rng.random((1, 6))), gt.TabularSoftmax(1, 6), theta=rng.normal(size=6))
    slope, point = gt.observe(problem, problem.theta, gt.Observable.entropy()).gradient, problem.at()
    p, advantage = point.probabilities[0], problem.bandit.mean_reward[0] - point.value
    mean = gt.gradient_mean(problem, problem.theta, "rloo", batch_size=1, group_size=4)
    told = [-covariance(p, weighted) for weighted in (p * advantage, advantage)][::order]
    found = [slope @ (move(point, mean, 1.0) - point.theta) for move in (gt.exact.plain_step, gt.exact.natural_step(problem))]
    return {PLAIN.id: (found[0], told[0]), NATURAL.id: (found[1], told[1])}


@gt.check(PRINTED, CORRECTED, **DRAWS, broken={"sign": -1.0})
def second_state(rng, sign=1.0):
    """The state after the token 0, which is visited in a share of the responses."""
    problem = gt.Problem(gt.Bandit(rng.random((1, 9))), gt.TokenTree(1, vocabulary_size=3, horizon=2), theta=rng.normal(size=12))
    after = [tokens[0] == 0 for tokens in problem.policy.responses]
    p, values = problem.at().probabilities[0][after], problem.bandit.mean_reward[0][after]
    q, slope = p / p.sum(), gt.observe(problem, problem.theta, gt.Observable.entropy_after([0])).gradient
    found = slope @ gt.gradient_mean(problem, problem.theta, "rloo", batch_size=1, group_size=4)
    told = -sign * covariance(q, q * (values - q @ values))
    return {PRINTED.id: (found, told), CORRECTED.id: (found, p.sum() * told)}
