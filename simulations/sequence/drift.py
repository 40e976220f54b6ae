"""T6, T7, T8: what updates off policy estimate, against the drift, exact.

On random trees the expected update is compared with the gradients that it may estimate, as a function of how far the policy has
moved. The controls have another ratio, clip or mean in the estimator, or updates that are turned.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation import find
from grpo_theory.evidence.reading import largest, most
from grpo_theory.harness import check, rows, run
from simulations.seeds import seed_of
from simulations.sequence.parts import NOTICEABLE, composed, cosine, generator_of, of_length, random_problem, turned
from simulations.sequence.tokens import Tokens
from simulations.statements import stated

T6, T7, T8 = stated("T6", "T7", "T8")

TREES, QUICK_TREES = {1: 128, 2: 192, 4: 192, 6: 192, 8: 192}, {1: 32, 2: 32, 4: 32}
"""How many random trees of each horizon. At the level of a whole report, 192 tell a share of 0.3 from a half, 128 one of 0.27,
and 32 one of 0.03."""
TREES_A_CHUNK = 16
DRIFTS = (0.03, 0.1, 0.14, 0.2, 0.28, 0.4, 0.63, 1.0)
"""Lengths of theta_k - theta_0, where scores are 1-Lipschitz: a token's log ratio is at most twice that."""
JUDGED = (0.1, 0.4, 1.0)
"""The drifts at which it is judged what holds in most trees; those along the gradient are a curve besides."""
DIRECTIONS = ("random", "learning")
"""Any direction, or along the gradient at the old policy, as training goes."""
VOCABULARY_SIZE, DIMENSION = 2, 6
LARGE = {"horizon": 8, "dimension": 200}
"""Trees with many parameters, on which only the clip by sign is examined, along the gradient.

Six parameters are shared by as many as 255 prefixes.
"""


LOW = HIGH = 0.2
"""The widths of the clips."""
GROUP_SIZE = 8
ESTIMATORS = {
    **{ratio: composed("rloo", ratio) for ratio in ("none", "token", "geometric", "trajectory")},
    "token, clipped": composed("rloo", "token", "by sign"),
    "trajectory, clipped": composed("rloo", "trajectory", "upper only"),
    "tic": find("tic_grpo"),
    "tic, unclipped": composed("dr_grpo", "trajectory", "none", "constant"),
}
"""The estimators that are compared, by name."""
IDENTITIES = {
    "T6/corrected": ("to surrogate", "token", "none"),
    "T7/printed": ("to current", "tic", "none"),
    "T7/leave-one-out": ("to current", "trajectory", "none"),
    "T7/own mean": ("to shrunk", "tic, unclipped", "tic"),
    "T7/corrected": ("to kept", "tic", "tic, unclipped"),
}
"""The distance that is zero, the estimator, and that of the control."""


def surrogate_gradient(old, now, rewards):
    """Return the gradient, at the current policy, of J with old prefixes, the current token, and old continuations, (d,).

    A sum over edges: reach of the prefix, times the current token's probability and score, times the old value beyond.
    """
    p, incidence = old.response_probabilities, old.paths.incidence
    through = p @ incidence
    beyond = (p * rewards) @ incidence / through
    return (through / old.probabilities * now.probabilities * beyond) @ now.scores


def measured(problem, sampler, theta, names):
    """Return by estimator what is measured of two policies and of the updates; lengths are relative to the current gradient's."""
    features, paths, rewards = problem.policy.jacobian()[0], problem.policy.paths, problem.bandit.mean_reward[0]
    old, now = (Tokens(paths, features @ vector, features) for vector in (problem.theta, theta))
    p, q = old.response_probabilities, now.response_probabilities
    gradient, shrunk = (q * rewards) @ now.response_scores, 1.0 - 1.0 / GROUP_SIZE
    # E_k[1_D grad log P_k (r - mu_0)]
    kept = (q * (q / p <= 1.0 + HIGH) * (rewards - p @ rewards)) @ now.response_scores
    scale = np.linalg.norm(gradient)
    targets = {"to current": gradient, "to old": (p * rewards) @ old.response_scores}
    targets |= {"to surrogate": surrogate_gradient(old, now, rewards), "to shrunk": shrunk * gradient, "to kept": shrunk * kept}
    # The clip by sign drops tokens; of rewards 0 and 1 the sign is that of the reward.
    ratios, right = old.of_responses(now.probabilities / old.probabilities), rewards[:, None]
    dropped = paths.taken * (right * (ratios > 1.0 + HIGH) + (1.0 - right) * (ratios < 1.0 - LOW))
    clipped = p @ dropped.sum(axis=1) / (p @ paths.lengths)
    nats = p @ np.log(p / q) / paths.horizon
    found: dict[str, dict] = {"policies": {"nats a token": nats, "share of tokens clipped": clipped}}
    current = problem.at(theta)
    means = {}
    for name in names:
        law = gt.exact.law_between(current, sampler, ESTIMATORS[name], batch_size=1, group_size=GROUP_SIZE)
        factor = float(paths.horizon) if name.startswith("tic") else 1.0
        means[name], found[name] = factor * law.mean, {"variance": factor**2 * law.trace / scale**2}
    if "none" in means:
        means["turned"] = turned(means["none"], gradient)
    for name, mean in means.items():
        distances = {target: np.linalg.norm(mean - vector) / scale for target, vector in targets.items()}
        found[name] = found.get(name, {}) | distances | {"cosine": cosine(mean, gradient)}
    return found


def small(quick):
    """Each horizon; quick takes fewer of the same trees."""
    return [{"horizon": horizon, "trees": trees} for horizon, trees in (QUICK_TREES if quick else TREES).items()]


def judged(quick):
    """Each direction and drift at which it is judged what holds in most trees; quick has no large trees."""
    large = [] if quick else [{**LARGE, "trees": TREES[LARGE["horizon"]], "direction": "learning"}]
    cases = [{**one, "direction": direction} for one in small(quick) for direction in DIRECTIONS]
    return [{**one, "drift": drift} for one in cases + large for drift in JUDGED]


def label(horizon, direction, drift, dimension=DIMENSION, **case):
    """Say which trees, and how the policy moved."""
    return f"T = {horizon}{'' if dimension == DIMENSION else f', {dimension} parameters'}, {direction}, drift {drift:g}"


@run(trees=TREES_A_CHUNK, shared=True)
def moved(horizon, trees, rng, chunk, dimension=DIMENSION):
    """Measure the exact updates on some trees, by direction and drift, estimator and quantity."""
    is_large = dimension != DIMENSION
    found: dict[str, dict] = {}
    for tree in range(chunk * trees, (chunk + 1) * trees):
        own = generator_of(tree, seed_of(rng))
        problem = random_problem(own, VOCABULARY_SIZE, horizon, None, n_prompts=1, dimension=dimension)
        sampler, away = problem.at(problem.theta), own.normal(size=dimension)
        for direction, vector in zip(DIRECTIONS, (away, sampler.moments.gradient), strict=True):
            if is_large and direction != "learning":
                continue
            for drift in DRIFTS if direction == "learning" and not is_large else JUDGED:
                theta = problem.theta + of_length(drift, vector)
                at = found.setdefault(f"{direction} {drift:g}", {})
                names = ("token", "token, clipped") if is_large else ESTIMATORS
                for name, values in measured(problem, sampler, theta, names).items():
                    for quantity, value in values.items():
                        at.setdefault(name, {}).setdefault(quantity, []).append(value)
    return found


@check(*stated(*IDENTITIES, "T6/printed"), of=moved, cases=small, broken={"wrong": True}, setting="T = {horizon}")
def on_every_tree(found, wrong=False):
    """What holds on every tree, at every direction and drift."""
    sides = {}
    for name, (quantity, *estimators) in IDENTITIES.items():
        sides[name] = largest([at[estimators[wrong]][quantity] for at in found.values()]), 0.0
    updates = [at["trajectory" if wrong else "token"] for at in found.values()]
    return sides | {"T6/printed": (largest([one["to old"] - one["to current"] for one in updates]), 0.0)}


@check(
    *stated("T6/clipped", "T6/most", "T6/no ratio", "T7/direction", "T8/token", "T8/gradient"),
    of=moved,
    cases=judged,
    broken={"wrong": True},
    setting=label,
)
def on_most_trees(found, horizon, direction, drift, dimension=DIMENSION, wrong=False):
    """What holds on most trees; on large ones only the clip is looked at, and of one token no ratio is along the gradient."""
    at = found[f"{direction} {drift:g}"]
    along = {name: values["cosine"] for name, values in at.items() if name != "policies"}
    if np.isnan(list(along.values())).any():
        raise ValueError("every cosine must be a number")
    facts = {name: values.mean() for name, values in at["policies"].items()}
    holds = {"T6/clipped": along["token"] < 0.0 if wrong else along["token, clipped"] > 0.0}
    if dimension == DIMENSION:
        facts |= {f"mean cosine, {name}": along[name].mean() for name in ("token", "none", "tic")}
        for name, ratio in (("T6/most", "token"), ("T6/no ratio", "none")):
            update = at["trajectory" if wrong else ratio]
            holds[name] = update["to old"] < update["to current"]
        if horizon > 1:
            update = along["turned" if wrong else "none"]
            holds["T7/direction"] = along["turned" if wrong else "tic"] > along["none"]
            holds |= {"T8/token": along["token"] - update <= NOTICEABLE, "T8/gradient": 1.0 - update <= NOTICEABLE}
    return {name: (most(each), facts) for name, each in holds.items()}


@rows(of=moved, cases=small)
def medians(found):
    """Medians along the gradient of what is measured of updates, for the figure."""
    for drift in DRIFTS:
        for name, values in found[f"learning {drift:g}"].items():
            for quantity, each in values.items():
                yield {"drift": drift, "estimator": name, "quantity": quantity, "estimate": np.median(each)}
