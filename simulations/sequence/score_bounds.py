"""T3, T4, T5, T13: norms of scores and gradients, random policies and worst cases, exact.

The two sides of each bound are computed for random policies over sequences, and a search looks for the worst. In the controls
bounds are too small by a constant, responses are another policy's, or the logarithm is to the base 2.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import largest
from grpo_theory.harness import check, run
from simulations.seeds import child_seed, seed_of
from simulations.sequence.tokens import Family, draw, within, worst_ratios
from simulations.statements import stated

T5 = stated("T5")

FAMILIES = {family.name: family for family in (Family(2, 1), Family(2, 2, 1), Family(3, 1), Family(2, 2))}
LOGITS, DRIFT = 8.0, 8.0
"""Bounds of the logits: a token's probability is at least about 3e-4, so what is attained only in the limit is near."""
SEARCH = {"policies": 1000, "starts": 256, "climbs": 2}
WIDTH = 0.2
"""The clip's upper width e, as practised."""


def power(tokens, weights):
    """Return sum_k weights_k ||W_k||^2."""
    return float(weights @ (tokens.response_scores**2).sum(axis=1))


def capped(old, now, rewards):
    """T4: E_0||min(rho, 1+e) W_k||^2, and (1+e) E_k||W_k||^2."""
    p, q = old.response_probabilities, now.response_probabilities
    return power(now, p * np.minimum(q / p, 1.0 + WIDTH) ** 2), (1.0 + WIDTH) * power(now, q)


def gradient(old, now, rewards):
    """T5: ||grad J|| against R sqrt(2 L T log V), of rewards up to R."""
    steep = np.linalg.norm((now.response_probabilities * rewards) @ now.response_scores)
    return steep, np.abs(rewards).max() * np.sqrt(2.0 * now.lipschitz * now.paths.horizon * np.log(now.paths.vocabulary_size))


def curvature(now, rewards):
    """Return the largest |eigenvalue| of the Hessian of J = E r: E r (W W' + the Hessian of log P)."""
    scores, weights = now.response_scores, now.response_probabilities * rewards
    hessian = np.einsum("k,ki,kj->ij", weights, scores, scores)
    hessian -= np.einsum("k,kij->ij", weights, now.of_responses(now.covariances).sum(axis=1))
    return float(np.abs(np.linalg.eigvalsh(hessian)).max())


def smoothness(old, now, rewards):
    """T5: ||Hess J|| against T R L (2 log V + 1)."""
    size = np.abs(rewards).max() * now.lipschitz * now.paths.horizon
    return curvature(now, rewards), size * (2.0 * np.log(now.paths.vocabulary_size) + 1.0)


BOUNDS = {"T4": (capped, DRIFT, 0.0), "T5/gradient": (gradient, 0.0, 1.0), "T5/smoothness": (smoothness, 0.0, 1.0)}
"""The sides of a bound, the largest drift and the largest reward; 0 where it does not depend on them."""
SHARPER = {"T5/gradient": lambda size: np.sqrt(2.0 * np.log(size)), "T5/smoothness": lambda size: np.log(size) + 0.5}
"""The printed bound over the one derived, R sqrt(L T) and 2 T R L, for a vocabulary size."""
TOO_SMALL = {"T4": 2.0, "T5/gradient": 3.0, "T5/smoothness": 6.0}
"""By what factors the controls' bounds are too small."""


def cases(quick):
    """Each family with each bound; a quick run has the smallest two alone."""
    return [{"bound": bound, "family": name, **SEARCH} for name in list(FAMILIES)[: 2 if quick else None] for bound in BOUNDS]


@run()
def worst(bound, family, rng, **search):
    """Find where left over right side of a bound is largest."""
    sides, drift, reward = BOUNDS[bound]
    return worst_ratios(sides, FAMILIES[family], FAMILIES[family].bounds(LOGITS, drift, reward), rng, **search)


@check(
    *stated("T4", "T5/gradient", "T5/gradient, sharp", "T5/smoothness", "T5/smoothness, sharp"),
    of=worst,
    cases=cases,
    broken={"too_small": True},
    setting="{family}",
)
def bounds(found, bound, family, too_small=False):
    """T4 and T5 on each family, as printed and as derived."""
    times = TOO_SMALL[bound] if too_small else 1.0
    sides = {bound: within(found, times)}
    if bound in SHARPER:
        sides[f"{bound}, sharp"] = within(found, times * SHARPER[bound](FAMILIES[family].vocabulary_size))
    return sides


@check(
    stated("T3"),
    # Of one token both sides are the same sum.
    cases=lambda quick: [one for one in cases(quick) if one["bound"] == "T4" and FAMILIES[one["family"]].horizon > 1],
    broken={"astray": True},
    setting="{family}",
)
def martingale(family, policies, rng, astray=False):
    """T3: E||grad log P(s_T)||^2 = E sum_t ||grad log P(s_t | s_{t-1})||^2; astray, of responses of another policy."""
    gaps = []
    for x in draw(FAMILIES[family].bounds(LOGITS, DRIFT, 1.0), policies, rng):
        old, now, _ = FAMILIES[family].at(x)
        p = (old if astray else now).response_probabilities
        by_token = float(p @ (now.of_responses(now.scores) ** 2).sum(axis=(1, 2)))
        gaps.append(abs(power(now, p) - by_token) / max(1.0, by_token))
    return largest(gaps), 0.0


@check(
    stated("T13"),
    cases=[{"points": list(points), **SEARCH} for points in (range(2, 8), range(8, 13))],
    broken={"log": np.log2},
    setting=lambda points, **search: "n = 2 to 7" if points[0] < 8 else "n > 7",
)
def simplices(points, starts, climbs, rng, log=np.log):
    """T13: sum x_i log^2 x_i over the simplex of n points, against 28/e^2 for few points and log^2 n for many."""

    def sides(x):
        shares = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        return float((shares * log(shares) ** 2).sum()), 28.0 * np.exp(-2.0) if x.size < 8 else np.log(x.size) ** 2

    seeds = {n: child_seed(seed_of(rng), n) for n in points}
    return largest(
        [gt.worst_case(sides, [(-12.0, 0.0)] * n, rng=seeds[n], starts=starts, climbs=climbs).score for n in points]
    ), 1.0
