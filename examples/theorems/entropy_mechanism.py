"""The entropy mechanism (arXiv 2505.22617): a policy-gradient step changes the entropy by -eta Cov(log pi, pi A), to first order.

The derivative of the entropy along each step is exact. In the broken cases each gradient has the other's covariance, or the
covariance the other sign.
"""

import numpy as np

import grpo_theory as gt

PLAIN, NATURAL, PRINTED, CORRECTED = (
    gt.Statement(f"entropy/{name}", f"arXiv 2505.22617, {number}", text, "identity", whose=whose)
    for name, number, text, whose in (
        ("theorem 1", "Theorem 1", "the entropy of one state changes by -eta Cov(log pi, pi A) to first order", "paper"),
        ("theorem 2", "Theorem 2", "with the natural gradient it changes by -eta Cov(log pi, A)", "paper"),
        ("theorem 1 on a tree", "Theorem 1, state by state", "and so does that of the second state of a response", "paper"),
        ("theorem 1 on a tree, corrected", "Theorem 1", "with the share of visits before the covariance", "correction"),
    )
)
DRAWS = [{"draw": number} for number in range(3)]


def covariance(p, x, y):
    """Return the covariance of two functions of a token."""
    return p @ (x * y) - (p @ x) * (p @ y)


@gt.check(PLAIN, NATURAL, cases=DRAWS, broken={"exchanged": True}, setting="draw {draw}")
def one_state(rng, exchanged=False):
    """The softmax of six answers."""
    problem = gt.Problem(gt.Bandit(rng.random((1, 6))), gt.TabularSoftmax(1, 6), theta=rng.normal(size=6))
    point, entropy = problem.at(problem.theta), gt.observe(problem, problem.theta, gt.Observable.entropy())
    p, advantage = point.probabilities[0], problem.bandit.mean_reward[0] - point.value
    found = []
    for move in (gt.exact.plain_step, gt.exact.natural_step(problem)):
        path = gt.mean_path(problem, problem.theta, "rloo", [1.0], group_size=4, steps=1, move=move)
        found.append(entropy.gradient @ (path.theta[1] - path.theta[0]))
    told = [-covariance(p, np.log(p), weighted) for weighted in (p * advantage, advantage)]
    return dict(zip((PLAIN.id, NATURAL.id), zip(found, told[:: -1 if exchanged else 1], strict=True), strict=True))


@gt.check(PRINTED, CORRECTED, cases=DRAWS, broken={"sign": -1.0}, setting="draw {draw}")
def second_state(rng, sign=1.0):
    """The state after the token 0, which is visited in a share of the responses."""
    tree = gt.TokenTree(1, vocabulary_size=3, horizon=2)
    problem = gt.Problem(gt.Bandit(rng.random((1, 9))), tree, theta=rng.normal(size=tree.dimension))
    after = [k for k, tokens in enumerate(tree.responses) if tokens[0] == 0]
    p, values = problem.at(problem.theta).probabilities[0][after], problem.bandit.mean_reward[0][after]
    q = p / p.sum()
    entropy = gt.observe(problem, problem.theta, gt.Observable.entropy_after([0]))
    mean = gt.gradient_mean(problem, problem.theta, "rloo", batch_size=1, group_size=4)
    told = -sign * covariance(q, np.log(q), q * (values - q @ values))
    return {PRINTED.id: (entropy.gradient @ mean, told), CORRECTED.id: (entropy.gradient @ mean, p.sum() * told)}
