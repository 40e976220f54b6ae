"""The entropy mechanism (arXiv 2505.22617): what a policy-gradient step does to the entropy, to first order, exactly.

A first-order statement is one about derivatives along the step, which are taken along the imaginary axis. In the controls the
covariance has the other theorem's weight, or another response is rewarded.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.literature.drawn import KINDS, TABLE, TREE, UNEVEN, drawn, expected_update, over, worst
from simulations.sequence.divergences import STEP, token_logs
from simulations.statements import stated


def slope(problem, of, direction):
    """Return the derivative along a direction (d,) of a function of the policy's token logs (M, D), at the problem's theta."""
    return of(token_logs(problem, problem.theta + 1j * STEP * direction)).imag / STEP


def by_state(problem, edges):
    """Return values of the edges of one prompt (1, D) by prefix and token, shape (P, V)."""
    return edges.reshape(-1, problem.policy.paths.vocabulary_size)


def covariance(p, one, other):
    """Return Cov_p(one, other) over the last axis."""
    return (p * one * other).sum(axis=-1) - (p * one).sum(axis=-1) * (p * other).sum(axis=-1)


def states(problem):
    """Return by state the tokens' probabilities and their advantages (P, V), and the share of responses that come there (P,)."""
    point, paths = problem.at(), problem.policy.paths
    p, mass = by_state(problem, point.token_probabilities), by_state(problem, paths.collect(point.probabilities))
    worth = by_state(problem, paths.collect(point.probabilities * problem.bandit.mean_reward)) / mass
    return p, worth - (p * worth).sum(axis=1, keepdims=True), mass.sum(axis=1)


def entropies(problem):
    """Return the entropy of each state's tokens, a function of token logs."""
    return lambda logs: -by_state(problem, np.exp(logs) * logs).sum(axis=1)


@check(
    *stated("entropy/lemma 1", "entropy/lemma 1, whole policy", "entropy/lemma 1, with visits"),
    cases=over(kind=KINDS),
    broken={"sign": -1.0},
    sound={"first": False},
)
def lemma(kind, rng, sign=1.0, first=True):
    """A random change of the parameters; in the sound case the tokens of the first state keep their probabilities."""
    problem = drawn(kind, rng)
    direction, paths = rng.normal(size=problem.theta.size), problem.policy.paths

    def visits(logs):
        """Return the share of responses that come to each state; along an imaginary step, too."""
        return by_state(problem, np.exp(paths.along(logs)) @ paths.incidence).sum(axis=1)

    if not first:
        logits = problem.policy.logits(np.eye(direction.size))[:, 0, : paths.vocabulary_size].T
        contrasts = logits - logits.mean(axis=0)
        direction -= np.linalg.pinv(contrasts) @ (contrasts @ direction)
    p, _, share = states(problem)
    entropy = entropies(problem)(problem.at().token_log_probabilities)
    told = -sign * covariance(p, np.log(p), by_state(problem, problem.policy.logits(direction)))
    whole = gt.observe(problem, problem.theta, gt.Observable.entropy()).gradient @ direction
    return {
        "entropy/lemma 1": (slope(problem, entropies(problem), direction), told),
        "entropy/lemma 1, whole policy": (whole, share @ told),
        "entropy/lemma 1, with visits": (whole, share @ told + slope(problem, visits, direction) @ entropy),
    }


@check(
    *stated("entropy/proposition 1", "entropy/theorem 1", "entropy/theorem 1, with visits"),
    *stated("entropy/whole responses", "entropy/theorem 2"),
    cases=over(kind=(TABLE, TREE, UNEVEN), draw=range(2)),
    broken={"exchanged": True},
    sound={"kind": TABLE},
    setting="{kind}, draw {draw}",
)
def theorems(kind, rng, exchanged=False):
    """The changes by a step of the policy gradient and of the natural one, state by state, and of whole responses."""
    problem = drawn(kind, rng)
    point, (p, advantage, share) = problem.at(), states(problem)
    mean = expected_update(problem, "rloo", 4)
    natural = gt.exact.natural_step(problem)(point, mean, 1.0) - problem.theta
    plain, whole = [p * advantage, advantage][:: -1 if exchanged else 1]
    changes = [slope(problem, entropies(problem), direction) for direction in (mean, natural)]
    own, logs = point.probabilities[0], np.log(point.probabilities[0])
    gained = problem.bandit.mean_reward[0] - point.value
    entropy = gt.observe(problem, problem.theta, gt.Observable.entropy()).gradient @ mean
    return {
        "entropy/proposition 1": (by_state(problem, problem.policy.logits(mean)), plain),
        "entropy/theorem 1": (changes[0], -covariance(p, np.log(p), plain)),
        "entropy/theorem 1, with visits": (changes[0], -share * covariance(p, np.log(p), plain)),
        "entropy/theorem 2": (changes[1], -covariance(p, np.log(p), whole)),
        "entropy/whole responses": (entropy, -covariance(own, logs, gained if exchanged else own * gained)),
    }


@check(
    *stated("entropy/likeliest", "entropy/rarer"),
    cases=over(responses=(3, 4)),
    broken={"exchanged": True},
    setting="{responses} responses, worst case found",
)
def one_rewarded(responses, rng, exchanged=False):
    """Seek the policy where a reward of one response alone moves the entropy the wrong way."""
    policy, entropy = gt.TabularSoftmax(1, responses), gt.Observable.entropy()
    problems = [gt.Problem(gt.Bandit(row[None]), policy) for row in np.eye(responses)]

    def change(theta, rewarded):
        return gt.observe(problems[0], theta, entropy).gradient @ gt.exact.gradient(problems[rewarded], theta)

    def likeliest(theta):
        return change(theta, theta.argmin() if exchanged else theta.argmax()), 0.0

    def rarer(theta):
        p = np.exp(theta - np.logaddexp.reduce(theta))
        rare = np.log(p) < p @ np.log(p) - 1e-9
        found = [change(theta, number) for number in np.flatnonzero(~rare if exchanged else rare)]
        return -min(found, default=0.0), 0.0

    return {f"entropy/{sides.__name__}": worst(sides, [(-4.0, 4.0)] * responses, rng) for sides in (likeliest, rarer)}
