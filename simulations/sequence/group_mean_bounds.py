"""T12: what the group's mean adds to the update, its bounds and their worst cases, exact.

All groups are enumerated, for random policies and for those that a search finds. In the controls bounds are an eighth as large.
"""

import numpy as np

from grpo_theory.exact.mean_updates import group_chances
from grpo_theory.exact.multisets import multisets
from grpo_theory.harness import check, run
from simulations.sequence.tokens import Family, within, worst_ratios
from simulations.statements import stated

T12 = stated("T12")

LOW, HIGH = 0.2, 0.2
"""The clip's widths, as practised."""
LOGITS, DRIFT = 4.0, 4.0
SMALLEST = Family(2, 1)
FAMILIES = {1: (SMALLEST, Family(2, 2, 1), Family(2, 3, 1)), 2: (SMALLEST, Family(2, 2, 1)), 4: (SMALLEST,), 64: (SMALLEST,)}
"""Families of policies, by the group size."""
SEARCH = {"policies": 300, "starts": 256, "climbs": 3}
"""Of the smallest family, whose worst cases hide behind the kinks of the clip; of others one climb, because each is dear."""


def baseline_term(old, now, rewards, group_size):
    """Return E||X2||^2, X2 = -(1/G) sum_i (1/|s_i|) sum_t 1_B grad log P_0 (mu_c - mu_0), one prompt, own sample in mu_c."""
    p, paths = old.response_probabilities, old.paths
    counts = multisets(p.size, group_size)
    means = counts @ rewards / group_size
    ratios = old.of_responses(now.probabilities / old.probabilities)
    kept = np.stack([ratios < 1.0 - LOW, ratios > 1.0 + HIGH])
    by_sign = np.where(kept[..., None], 0.0, old.of_responses(old.scores)).sum(axis=2) / paths.lengths[:, None]
    positive = rewards >= means[:, None]
    sums = (counts * positive) @ by_sign[1] + (counts * ~positive) @ by_sign[0]
    power = (sums**2).sum(axis=1) * ((means - p @ rewards) / group_size) ** 2
    return float(group_chances(counts, p) @ power)


def current_term(old, now, rewards, group_size):
    """Return E||Y1||^2, Y1 = (1/T) (1/G) sum_i 1_D rho grad log P_k (mu_k - mu_c), one prompt, own sample in mu_c."""
    p, q = old.response_probabilities, now.response_probabilities
    rho = q / p
    counts = multisets(p.size, group_size)
    sums = counts @ (np.where(rho <= 1.0 + HIGH, rho, 0.0)[:, None] * now.response_scores)
    gaps = q @ rewards - counts @ rewards / group_size
    power = (sums**2).sum(axis=1) * (gaps / (group_size * old.paths.horizon)) ** 2
    return float(group_chances(counts, p) @ power)


def baseline_printed(old, now, rewards, group_size):
    """Return (2L/G) log V."""
    return float(2.0 * old.lipschitz * np.log(old.paths.vocabulary_size) / group_size)


def baseline_corrected(old, now, rewards, group_size):
    """Return R^2 ((G + 3)/G^2) 2 L (log V + 1 - 1/T), or without 1 - 1/T if all lengths are equal."""
    lengths = old.paths.lengths
    log_v = float(np.log(old.paths.vocabulary_size)) + (1.0 - 1.0 / lengths.max() if np.ptp(lengths) else 0.0)
    return float(np.abs(rewards).max()) ** 2 * (group_size + 3.0) / group_size**2 * 2.0 * old.lipschitz * log_v


def current_printed(old, now, rewards, group_size):
    """Return 2 (1 + e) L log V/(T G)."""
    return (1.0 + HIGH) * baseline_printed(old, now, rewards, group_size) / old.paths.horizon


def current_corrected(old, now, rewards, group_size):
    """Return [(|mu_k - mu_0| + 2R/G)^2 + R^2/G] 2 (1 + e) L log V/T."""
    drift = abs(float((now.response_probabilities - old.response_probabilities) @ rewards))
    r = float(np.abs(rewards).max())
    return ((drift + 2.0 * r / group_size) ** 2 + r**2 / group_size) * group_size * current_printed(old, now, rewards, group_size)


BOUNDS = {
    "T12/X2, R=1": (baseline_term, baseline_printed),
    "T12/X2/corrected": (baseline_term, baseline_corrected),
    "T12/Y1, R=1": (current_term, current_printed),
    "T12/Y1/corrected": (current_term, current_corrected),
}
"""A term and its bound."""


def cases(quick):
    """Each bound at each group size; a quick run has the largest group alone."""
    return [{"bound": name, "group_size": size, **SEARCH} for size in ((64,) if quick else FAMILIES) for name in BOUNDS]


@run()
def worst(bound, group_size, climbs, rng, **search):
    """Find where a term over its bound is largest, on each family."""
    term, limit = BOUNDS[bound]

    def sides(old, now, rewards):
        return term(old, now, rewards, group_size), limit(old, now, rewards, group_size)

    found = []
    for family in FAMILIES[group_size]:
        box, search["climbs"] = family.bounds(LOGITS, DRIFT, 1.0), climbs if family == SMALLEST else 1
        found.append(worst_ratios(sides, family, box, rng, **search))
    return {how: [one[how] for one in found] for how in found[0]}


@check(
    *stated(*BOUNDS, "T12/X2", "T12/Y1"),
    of=worst,
    cases=cases,
    broken={"times": 8.0},
    sound={"rewards": (0.1, 0.1)},
    setting="G = {group_size}",
)
def bounds(found, bound, times=1.0, rewards=(1.0, 10.0)):
    """Each term over its bound, with rewards up to 1 and, as printed, up to 10: terms grow with their square, bounds do not.

    In the broken case bounds are too small, in the sound one rewards are.
    """
    if bound.endswith("corrected"):
        return {bound: within(found, times)}
    names = bound, bound.removesuffix(", R=1")
    return {name: within(found, times * reward**2) for name, reward in zip(names, rewards, strict=True)}
