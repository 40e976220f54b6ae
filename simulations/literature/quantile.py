"""Quantile advantages (arXiv 2509.22611): the K-quantile of a group in place of its mean, and what it does to the entropy.

With rewards of 0 and 1 the baseline is one of them. In the controls weights lack their root, a threshold is off, or the policy
is uniform. In others groups are small, rewards have three levels, or the step is twice as long.
"""

import math

import numpy as np

import grpo_theory as gt
from grpo_theory.harness import check
from simulations.kernels import kernel_at, unregistered
from simulations.literature.drawn import (
    BINARY,
    DIVIDED,
    FEATURES,
    GRADED,
    POLICIES,
    SHARED,
    TABLE,
    TREE,
    climbing,
    drawn,
    over,
    world,
)
from simulations.literature.entropy_mechanism import covariance
from simulations.sequence.parts import of_length
from simulations.statements import stated

FAILURE = gt.Objective.of_success("log failure", lambda p: np.log(1.0 - p), lambda p: -1.0 / (1.0 - p))
ENTROPY = gt.Observable.entropy()


def easy(rate, level):
    """Return whether a share of right responses is above 1 - K, with room for rounding."""
    return rate > 1.0 - level + 1e-9


@unregistered("quantile", parameters={"level": 0.4, "epsilon": 0.0}, minimum_group_size=2, exchangeable=True)
def quantile(batch, advantages):
    """A = (Z - b)/(the group's deviation + epsilon), b its smallest reward that a share K of the group does not exceed."""
    for b in range(batch.rewards.shape[0]):
        rewards = np.sort(batch.rewards[b])
        baseline = rewards[int(np.ceil(batch.parameters[0] * rewards.size - 1e-9)) - 1]
        deviation = rewards.std() + batch.parameters[1]
        for i in range(rewards.size):
            advantages[b, i] = (batch.rewards[b, i] - baseline) / deviation if deviation > 0.0 else 0.0


def estimator(level, size):
    """Return the estimator, or its advantage in groups without end."""
    if size < math.inf:
        return quantile.with_parameters(level=level)
    return lambda values, law: (values - easy(law[..., 1:], level)) / np.sqrt(law[..., :1] * law[..., 1:])


def update(problem, advantage, size):
    """Return the mean update on policy; groups may be without end."""
    return np.diff(gt.mean_path(problem, problem.theta, advantage, [1.0], group_size=size, steps=1).theta, axis=0)[0]


@check(
    *stated("qae/equation 4", "qae/code"),
    cases=over(level=(0.2, 0.4, 0.6, 0.8), size=(5, 8)),
    broken={"off": 0.2},
    sound={"size": 16},
    setting="K = {level}, G = {size}",
)
def threshold(level, size, off=0.0):
    """The quantile of every group, as defined and as interpolated, beside the threshold; at G = 16 each K(G - 1) is whole."""
    groups = np.arange(size) >= np.arange(size, -1, -1)[:, None]
    told = easy(groups.mean(axis=1), level + off) * 1.0
    defined, interpolated = (
        np.quantile(1.0 * groups, level, axis=1, method="inverted_cdf"),
        np.quantile(1.0 * groups, level, axis=1, method="linear"),
    )
    return {"qae/equation 4": (defined, told), "qae/code": (interpolated, told)}


@check(
    *stated("qae/proposition 4.1", "qae/proposition 4.1, success rate"),
    cases=over(policy=POLICIES, level=(0.2, 0.4, 0.8), size=(5, 8)),
    broken={"power": 1.0},
    sound={"size": math.inf},
    setting="{policy}, K = {level}, G = {size}",
)
def weights(policy, level, size, rng, power=0.5):
    """The mean update, with a group's share of right responses in the weights, and with the success rate."""
    problem = world(policy, rng, prompts=1)
    right, wrong = climbing(problem, gt.Objective.log_success()), climbing(problem, FAILURE)

    def weighed(rate):
        odds = (rate / (1.0 - rate)) ** power if 0.0 < rate < 1.0 else 0.0
        return np.array([0.0, -1.0 / odds if odds else 0.0] if easy(rate, level) else [odds, 0.0])

    found, alone = update(problem, estimator(level, size), size), weighed(problem.at().value.item())
    ours = alone
    if size < math.inf:
        ours = gt.exact.group_expectation(problem, None, lambda rewards: weighed(rewards.mean()), group_size=size)[0]
    told = {"qae/proposition 4.1": ours, "qae/proposition 4.1, success rate": alone}
    return {name: (found, one @ [right, wrong]) for name, one in told.items()}


@check(
    stated("qae/proposition 4.1, epsilon"),
    cases=over(policy=POLICIES, epsilon=(1e-2, 1e-1)),
    broken={"level": 0.8},
    sound={"prompts": 1},
    setting="{policy}, epsilon {epsilon:g}",
)
def with_epsilon(policy, epsilon, rng, level=0.4, prompts=3):
    """The direction of the mean update over three prompts, or one; groups of eight."""
    problem = world(policy, rng, prompts=prompts)
    settings = {"level": level, "epsilon": epsilon}, {"level": 0.4, "epsilon": 0.0}
    return tuple(of_length(1.0, update(problem, quantile.with_parameters(**one), 8)) for one in settings)


@check(
    stated("qae/along the gradient"),
    cases=over(policy=POLICIES, level=(0.2, 0.4, 0.8)),
    broken={"values": GRADED},
    setting="{policy}, K = {level}",
)
def along(policy, level, rng, values=BINARY):
    """The direction of the mean update at one prompt, groups of eight; in the broken case with three rewards."""
    problem = world(policy, rng, values, prompts=1)
    return of_length(1.0, update(problem, estimator(level, 8), 8)), of_length(1.0, gt.exact.gradient(problem))


@check(
    stated("qae/same as GRPO"),
    cases=over(policy=POLICIES, level=(0.2, 0.4, 0.8)),
    broken={"size": 8},
    setting="{policy}, K = {level}",
)
def same(policy, level, rng, size=math.inf):
    """The mean update over three prompts, beside that of GRPO; both in groups of eight in the broken case."""
    problem = world(policy, rng, prompts=3)
    return update(problem, estimator(level, size), size), update(problem, DIVIDED, size)


@check(
    stated("qae/rare successes"),
    cases=over(level=(0.2, 0.4), size=(8, 32, math.inf)),
    broken={"rare": 0.3},
    sound={"each": True},
    setting="K = {level}, G = {size}",
)
def rarer(level, size, rare=0.1, each=False):
    """The weight of the mean score of right responses at success rates of 0.3 and 0.1; in the sound case that of one of them."""
    found = []
    for rate in (0.3, rare):
        advantages = gt.exact.mean_advantages(estimator(level, size), BINARY, [1.0 - rate, rate], group_size=size)
        found.append(advantages[1] * (1.0 if each else rate))
    return tuple(found)


def halves(rng, uniform=False):
    """Return a problem of three right and three wrong responses, its probabilities, and its rewards."""
    problem = gt.Problem(gt.Bandit([[0, 0, 0, 1, 1, 1]]), gt.TabularSoftmax(1, 6), theta=rng.normal(size=6) * (not uniform))
    return problem, problem.at().probabilities[0], problem.bandit.mean_reward[0]


def change(problem, baseline, logits=False):
    """Return the slope of the entropy along a step of the policy gradient, or one of pi A for the logits."""
    p, rewards = problem.at().probabilities[0], problem.bandit.mean_reward[0]
    step = p * (rewards - baseline) if logits else update(problem, kernel_at("constant_baseline", baseline), 1)
    return gt.observe(problem, None, ENTROPY).gradient @ step


@check(
    *stated("qae/entropy identity", "qae/entropy of every baseline"),
    cases=over(draw=range(3), baseline=(0.0, 0.5, 1.0)),
    broken={"power": 0.0},
    sound={"logits": True},
    setting="draw {draw}, b = {baseline}",
)
def identity(baseline, rng, power=1.0, logits=False):
    """A step of the policy gradient. In the sound case logits move by pi A; in the broken one the covariance has A for pi A."""
    problem, p, rewards = halves(rng)
    printed, centred = (-covariance(p, np.log(p), p**power * (rewards - b)) for b in (baseline, p @ rewards))
    return {
        "qae/entropy identity": (change(problem, baseline, logits), printed),
        "qae/entropy of every baseline": (change(problem, baseline), centred),
    }


@check(
    stated("qae/entropy rises with the baseline"),
    cases=over(draw=range(3), baseline=(0.0, 0.5, 0.9)),
    broken={"uniform": True},
    sound={"logits": True},
    setting="draw {draw}, b = {baseline}",
)
def rising(baseline, rng, uniform=False, logits=False):
    """The entropy's slope at a baseline and one 0.1 larger."""
    problem = halves(rng, uniform)[0]
    return change(problem, baseline, logits), change(problem, baseline + 0.1, logits)


@check(
    stated("qae/covariance"),
    cases=over(kind=(TABLE, FEATURES, TREE, SHARED), scale=(1e-2, 1.0, 3.0)),
    broken={"scale": 0.0},
    setting="{kind}, {scale} from uniform",
)
def comonotone(kind, scale, rng):
    """Random parameters, near 0 and far; at 0 a policy is uniform over the tokens."""
    problem = drawn(kind, rng)
    p = problem.at(scale * problem.theta).probabilities[0]
    return 0.0, covariance(p, np.log(p), p)


@check(
    *stated("qae/proposition 4.2, hard", "qae/proposition 4.2, easy"),
    cases=over(draw=range(3), level=(0.4, 0.6), size=(8, 16)),
    broken={"longer": 2.0},
    sound={"rarest": False},
    setting="draw {draw}, K = {level}, G = {size}",
)
def regimes(level, size, rng, rarest=True, longer=1.0):
    """One response of six is right, or wrong: the rarest, or in the sound case the likeliest one time in ten."""
    theta, found = np.sort(rng.normal(size=6)), {}
    marked = np.eye(6)[:1] if rarest else 0.1 * np.eye(6)[5:]
    for regime, rates in {"hard": marked, "easy": 1.0 - marked}.items():
        problem = gt.Problem(gt.Bandit(rates), gt.TabularSoftmax(1, 6), theta=theta)
        slope = gt.observe(problem, None, ENTROPY).gradient
        sides = longer * slope @ update(problem, estimator(level, size), size), slope @ update(problem, DIVIDED, size)
        found[f"qae/proposition 4.2, {regime}"] = sides if regime == "hard" else sides[::-1]
    return found
