"""R6: slope, smoothness and convergence of the softmax bandit, exact.

The problem is one prompt with a logit for each response. Bounds are compared with the worst of random bandits and of those that a
search finds. Rates and constants are compared with long paths. In the controls the gradient is halved, or rewards
lie outside [0, 1]. Or steps are shorter or 15% longer than the bound or the limit supposes, or divided by another power.
"""

import numpy as np
from scipy.special import softmax

from grpo_theory.harness import check
from grpo_theory.jit import kernel
from grpo_theory.theory import GREATEST_CURVATURE, divided_gap_limit, softmax_gap_bound, softmax_gap_limit
from simulations.statements import stated
from simulations.worst_cases import worst_of

R6 = stated("R6")
STEP = 0.4
LEAST_SHORTFALL = 0.1
"""Of random bandits: what is left of the second best decays only after some K/(step shortfall) updates."""
LOGITS = 8.0
"""Bound of the logits in the search."""
CLOSE = 0.05
"""Relative: a budget known to 5%."""
POINTWISE = {
    "R6/slope": (lambda k, slope, curvature, promise: (promise, slope), 2.0),
    "R6/slope, sharp": (lambda k, slope, curvature, promise: (np.sqrt(k / (k - 1.0)) * promise, slope), 2.0),
    "R6/smoothness": (lambda k, slope, curvature, promise: (curvature, 2.5), 20.0),
    "R6/smoothness, sharp": (lambda k, slope, curvature, promise: (curvature, GREATEST_CURVATURE), 2.0),
}
"""The two sides of a bound at a point, and how many times more the left side is in the control. There the own
sample is in the mean of a group of two, which halves the gradient, or rewards are so many times larger."""
GAPS = {
    "R6/gap": (lambda k: 5.0 * k**2, 60.0),
    "R6/gap, sharper": (lambda k: softmax_gap_bound(k, step=STEP), 30.0),
    "R6/gap, linear": (lambda k: k / STEP, 5.0),
}
"""What t times the gap is at most, with t = 1 at the start. And how many times shorter the steps are in the control."""


@kernel
def gap_path(rewards, step, power, gaps):
    """Fill in the gap before each update, from equal logits; steps are divided by a power of the standard deviation."""
    logits = np.zeros(rewards.size)
    best = rewards.max()
    for t in range(gaps.size):
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        gaps[t] = (shares * (best - rewards)).sum()
        advantages = rewards - (shares * rewards).sum()
        deviation = np.sqrt((shares * advantages**2).sum())
        logits += step / deviation**power * shares * advantages


def gaps_along(rewards, updates, step=STEP, power=0.0):
    """Return the gap before each of the updates, shape (updates,), from equal logits."""
    gaps = np.empty(updates)
    gap_path(np.ascontiguousarray(rewards), step, power, gaps)
    return gaps


def measured(logits, rewards):
    """Return the length of the gradient, the spectral norm of the Hessian, and the best response's probability times the gap."""
    pi, best = softmax(logits), int(rewards.argmax())
    lead = pi * ((rewards[:, None] - rewards) @ pi)  # probability times advantage, from differences of rewards: these are exact
    scores = np.eye(rewards.size) - pi
    curvature = np.abs(np.linalg.eigvalsh(scores.T @ (lead[:, None] * scores))).max()  # E[(r - E r) W W'], W the scores
    return np.linalg.norm(lead), curvature, pi[best] * (pi @ (rewards[best] - rewards))


def random_rewards(rng, k):
    """Return random rewards whose best is above the others by the least shortfall; every other time they are 0 and 1."""
    rewards = rng.uniform(size=k)
    best = rng.integers(k)
    if rng.uniform() < 0.5:
        return np.eye(k)[best]
    rewards[best] = 0.0
    rewards *= 1.0 - LEAST_SHORTFALL
    rewards[best] = rng.uniform(rewards.max() + LEAST_SHORTFALL, 1.0)
    return rewards


def numbers(quick, *bounds, **sizes):
    """Each bound with each number of responses."""
    search = {"starts": 16, "climbs": 1} if quick else {"starts": 64, "climbs": 2}
    return [{"n_responses": k, "bound": one, **search, **sizes} for k in ((2, 3) if quick else (2, 3, 5, 10)) for one in bounds]


@check(
    *stated(*POINTWISE),
    cases=lambda quick: numbers(quick, *POINTWISE, bandits=200 if quick else 2000),
    broken={"starts": 0, "wrong": True},
    setting="K = {n_responses}",
)
def at_points(n_responses, bound, bandits, starts, climbs, rng, wrong=False):
    """Left over right side of a bound at worst, over logits and rewards."""
    (sides, factor), k = POINTWISE[bound], n_responses

    def at(logits, rewards):
        return sides(k, *measured(logits, rewards))

    drawn = [at(rng.normal(scale=rng.choice([0.5, 2.0, 5.0]), size=k), random_rewards(rng, k)) for _ in range(bandits)]
    box = [(-LOGITS, LOGITS)] * k + [(0.0, 1.0)] * k
    found, one, facts = worst_of(drawn, lambda x: at(*np.split(x, 2)), box, rng, starts, climbs)
    return {bound: (factor * found if wrong else found, one, facts)}


@check(
    *stated(*GAPS),
    cases=lambda quick: numbers(quick, *GAPS, paths=5 if quick else 20, updates=10_000, sought_updates=2000),
    broken={"starts": 0, "slower": True},
    setting="K = {n_responses}",
)
def along_paths(n_responses, bound, paths, updates, sought_updates, starts, climbs, rng, slower=False):
    """T times the gap over its bound, at worst; the worst is reached by t = 5 K, where the best response takes over."""
    most, times = GAPS[bound][0](n_responses), GAPS[bound][1] if slower else 1.0

    def sides(rewards, length):
        return (np.arange(1, length + 1) * gaps_along(rewards, length, STEP / times)).max(), most

    drawn = [sides(random_rewards(rng, n_responses), updates) for _ in range(paths)]
    box = [(0.0, 1.0)] * n_responses
    return {bound: worst_of(drawn, lambda x: sides(x, sought_updates), box, rng, starts, climbs)}


@check(
    *stated("R6/rate", "R6/rate, constant", "R6/divided", "R6/divided, constant"),
    cases=lambda quick: [
        {"n_responses": k, "paths": 5 if quick else 20, "updates": 10_000} for k in ((2, 3) if quick else (2, 3, 5, 10))
    ],
    broken={"longer": 1.15, "powers": (0.3, 0.9)},
    setting="K = {n_responses}",
)
def laws(n_responses, paths, updates, rng, longer=1.0, powers=(0.0, 1.0)):
    """Exponents and constants of gap ~ constant/t^order; what is off by order (log t)/t is below the margins at the end."""
    sides: dict = {}
    half, drawn = updates // 2, [random_rewards(rng, n_responses) for _ in range(paths)]
    for divided, power, name in zip((0.0, 1.0), powers, ("R6/rate", "R6/divided"), strict=True):
        order, exponents, distances = 1.0 + divided, [], []
        for rewards in drawn:
            gaps = gaps_along(rewards, updates + 1, power=power)[[half, updates]]
            exponents.append(np.diff(np.log(gaps))[0] / np.log(updates / half))
            gaps = gaps_along(rewards, updates + 1, longer * STEP, divided)[[half, updates]]
            growth = np.diff(gaps ** (-1.0 / order))[0] / (updates - half)
            short = np.delete(rewards.max() - rewards, rewards.argmax())
            limit = divided_gap_limit(short, STEP) if divided else softmax_gap_limit(n_responses, STEP)
            distances.append(abs(growth**-order / limit - 1.0))
        sides |= {name: (exponents, -order), f"{name}, constant": (distances, CLOSE)}
    return sides
