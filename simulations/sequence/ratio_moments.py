"""T4: the second moment of the trajectory ratio against the horizon, clipped and not, exact.

On random trees the policy moves a little way in a random direction. In the control the ratio is squared.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import largest
from grpo_theory.harness import check, run
from grpo_theory.validation import Array
from simulations.sequence.parts import features_of, of_length
from simulations.sequence.tokens import Tokens
from simulations.statements import stated

HORIZONS, QUICK_HORIZONS = (1, 2, 3, 4, 6, 8, 10, 12), (1, 2, 4, 12)
DRIFTS = (0.1, 0.3, 1.0)
"""Lengths of theta_k - theta_0, where scores are 1-Lipschitz."""
TREES, QUICK_TREES = 20, 5
VOCABULARY_SIZE, DIMENSION = 2, 2
HIGH = 0.2
"""The clip's upper width, as practised."""


def cases(quick):
    """Each drift, on trees of all horizons."""
    trees = {"horizons": list(QUICK_HORIZONS), "trees": QUICK_TREES} if quick else {"horizons": list(HORIZONS), "trees": TREES}
    return [{"drift": drift, **trees} for drift in DRIFTS]


def moments(p: Array, rho: Array) -> dict[str, float]:
    """Return second moments of a ratio under the old policy, and how many responses have a ratio that is too high.

    "share dropped" are those among what the old policy draws, "mass dropped" those among what the current one would draw.

    Parameters
    ----------
    p, rho : ndarray, shape (K,)
        The old policy's probabilities of the responses, and the ratios.
    """
    kept = rho <= 1.0 + HIGH
    return {
        "trajectory": float(p @ rho**2),
        "dropped": float(p @ np.where(kept, rho, 0.0) ** 2),
        "capped": float(p @ np.minimum(rho, 1.0 + HIGH) ** 2),
        "doubled": float(p @ rho**4),
        "share dropped": float(p @ ~kept),
        "mass dropped": float((p * rho) @ ~kept),
    }


@run()
def moved(drift, horizons, trees, rng):
    """Return the moments on every tree, after a step in a random direction."""
    found = []
    for horizon in horizons:
        paths = gt.TokenTree(1, VOCABULARY_SIZE, horizon).paths
        for tree in range(trees):
            features = features_of(rng, 1, paths, DIMENSION)[0]
            theta, away = rng.normal(size=(2, DIMENSION))
            old, now = (Tokens(paths, features @ at, features) for at in (theta, theta + of_length(drift, away)))
            p = old.response_probabilities
            found.append({"horizon": horizon, "tree": tree, **moments(p, now.response_probabilities / p)})
    return {name: [one[name] for one in found] for name in found[0]}


@check(*stated("T4/clipped", "T4/curse"), of=moved, cases=cases, broken={"doubled": True}, setting="drift {drift:g}")
def second_moments(found, drift, doubled=False):
    """Both bounds at the worst horizon and tree: 1 + e, and exp(T L drift^2), whose exponent is that of the moment."""
    exponents = np.log(found["doubled" if doubled else "trajectory"]) / (found["horizon"] * drift**2)
    return {
        "T4/clipped": (largest(found["doubled" if doubled else "dropped"]), 1.0 + HIGH),
        "T4/curse": (largest(exponents), 1.0, {"median": np.median(exponents)}),
    }
