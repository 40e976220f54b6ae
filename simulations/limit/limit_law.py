"""U11: the limit law of the suboptimality gap, by simulation of many training runs.

In the controls weights and degrees of freedom are a quarter too large, and means 6%. At finite n the control takes the limit for
the mean.
"""

from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import solve_continuous_lyapunov
from scipy.special import chdtr, ndtr

import grpo_theory as gt
from grpo_theory.evidence.reading import mean_of
from grpo_theory.harness import check, rows, run
from grpo_theory.theory import gap_recursion, limit_covariance, linearise
from grpo_theory.theory.weighted_chi_square import law_distance
from simulations.maximum import maximum
from simulations.seeds import seed_of
from simulations.statements import stated

U11 = stated("U11")
LAWS = stated("U11/printed", "U11/corrected", "U11/normal", "U11/mean", "U11/normal gap", "U11/finite")

STEPS, RUNS, QUICK_RUNS, CHUNK_RUNS = 2000, 40_960, 2048, 2048
LONG = {
    ("kl-tabular", "rloo"): 57_344,
    ("kl-linear", "rloo"): 92_160,
    ("kl-linear", "reinforce"): 77_824,
    ("conflict", "rloo"): 143_360,
    ("single", "rloo"): 131_072,
    ("single", "grpo"): 131_072,
    ("kl-sequence", "rloo"): 143_360,
}
"""Where a run of the usual length was too near to a margin: it says of each row how many runs would decide it."""
ESTIMATORS = {
    "kl-tabular": ("rloo", "oracle", "reinforce"),
    "kl-linear": ("rloo", "oracle", "reinforce"),
    "conflict": ("rloo", "oracle", "reinforce"),
    "single": ("rloo", "grpo"),
    "kl-sequence": ("rloo",),
}
VARIANTS: tuple[dict[str, Any], ...] = (
    {"problem": "kl-linear", "factor": 1.0, "steps": 8000},
    {"problem": "kl-linear", "factor": 4.0, "runs": 77_824},
    {"problem": "kl-linear", "batch_size": 4, "steps": 1000},
    {"problem": "kl-linear", "group_size": 16, "steps": 1000},
    {"problem": "crowd", "batch_size": 4, "runs": 20_480},
    {"problem": "kl-linear", "factor": 0.6, "runs": 92_160},
)
USUAL = {"batch_size": 1, "group_size": 4, "factor": 2.0}
SYMBOLS = {"batch_size": "B", "group_size": "G", "factor": "beta lambda_min"}
LEVELS = np.linspace(0.01, 0.99, 50)
TAIL = 0.05


def cases(quick: bool) -> list[dict[str, Any]]:
    """The leave-one-out estimator (and GRPO, on one prompt), its rivals and other settings; quick has some, with few runs."""
    main: list[dict[str, Any]] = [
        {"problem": problem, "estimator": name} for problem, names in ESTIMATORS.items() for name in names
    ]
    found = []
    for one in [*main[::3], *VARIANTS[-2:]] if quick else [*main, *VARIANTS]:
        case = {"estimator": "rloo", "steps": STEPS, "runs": LONG.get((one["problem"], one.get("estimator", "")), RUNS), **USUAL}
        found.append(case | one | ({"runs": QUICK_RUNS} if quick else {}))
    return found


def label(**case):
    """Return the problem and estimator, and whatever differs from B = 1, G = 4 and beta = 2/lambda_min."""
    extra = [f"{symbol} = {case[name]:g}" for name, symbol in SYMBOLS.items() if case[name] != USUAL[name]]
    return f"{case['problem']} ({', '.join([case['estimator'], *extra])})"


@cache
def linearised(problem, estimator, batch_size, group_size, factor):
    """Return the learner near the maximiser, beta = factor / lambda_min, and an offset that keeps the first steps stable."""
    found, best, _ = maximum(problem)
    linear = linearise(found, best, estimator, batch_size=batch_size, group_size=group_size)
    beta = factor / linear.slowest
    return linear, beta, int(20.0 * beta * np.abs(np.linalg.eigvals(linear.drift)).max()) + 200


@run(runs=CHUNK_RUNS)
def trained(problem, estimator, factor, steps, runs, rng, **sizes):
    """Train from the maximiser; return (n + offset) times the gap, and the squared Mahalanobis distance, of each run."""
    found, best, highest = maximum(problem)
    linear, beta, offset = linearised(problem, estimator, factor=factor, **sizes)
    sizes |= {"steps": steps, "replications": runs}
    training = gt.simulate_training(found, best, estimator, gt.Harmonic(beta, offset), **sizes, rng=seed_of(rng), workers=1)
    deviation = np.sqrt(steps + offset) * (training.theta - best) @ linear.directions
    inverse = np.linalg.inv(limit_covariance(linear, beta))
    return {
        "gap": (steps + offset) * (highest - training.objectives[:, 0]),
        "distance": np.einsum("ri,ij,rj->r", deviation, inverse, deviation),
    }


@check(*LAWS, of=trained, cases=cases, broken={"larger": 1.25, "mean": 1.06}, setting=label)
def laws(found, problem, estimator, steps, larger=1.0, mean=1.0, **setting):
    """The limit laws; just above the least step the mean at finite n, which is far from the limit's.

    In the broken case weights and degrees of freedom are a quarter too large, and means 6%; at finite n the limit is taken.
    """
    gap, setting = found["gap"], {name: setting[name] for name in USUAL}
    linear, beta, offset = linearised(problem, estimator, **setting)
    law, rank = linear.gap_law(limit_covariance(linear, beta)), len(linear.curvatures)
    if setting["factor"] < 1.0:
        finite = gap_recursion(linear, gt.Harmonic(beta, offset).steps(steps), np.zeros((rank, rank)))[-1]
        return {"U11/finite": (mean_of(gap), (steps + offset) * float(finite) if larger == 1.0 else law.mean())}
    wrong = gt.WeightedChiSquare(larger * law.weights)
    degrees = rank if larger == 1.0 else rank + max(1, rank // 4)
    sides = {
        "U11/printed": distance(gap, printed_law(linear, beta).cdf if larger == 1.0 else wrong.cdf),
        "U11/corrected": distance(gap, wrong.cdf),
        "U11/normal": distance(found["distance"], lambda x: chdtr(degrees, x)),
    }
    if problem == "crowd":
        normal = lambda x: ndtr((x - law.mean()) / law.std())  # noqa: E731
        sides["U11/normal gap"] = distance(gap, normal if larger == 1.0 else wrong.cdf)
    if setting == USUAL and estimator in ("rloo", "grpo"):
        sides["U11/mean"] = mean_of(gap), mean * law.mean()
    return sides


@rows(of=trained, cases=lambda quick: [one for one in cases(quick) if USUAL.items() <= one.items()])
def quantiles(found, problem, estimator):
    """The quantiles of the gap beside those of the law, for the QQ plot."""
    linear, beta, _ = linearised(problem, estimator, **USUAL)
    law = linear.gap_law(limit_covariance(linear, beta))
    for level, estimate, prediction in zip(LEVELS, np.quantile(found["gap"], LEVELS), law.ppf(LEVELS), strict=True):
        yield {"quantity": "quantile", "level": level, "estimate": estimate, "prediction": prediction}


def distance(sample, cdf):
    """Return the sides of a law: the largest distance between the sample's distribution function and the law's, and 0."""
    found = law_distance(lambda ordered: np.interp(ordered, *_tabulated(cdf, ordered)), sample)
    return (found.estimate, 0.0, len(sample)), 0.0


def _tabulated(cdf, ordered):
    """Tabulate a distribution function on the sample's own quantiles, in the tails in equal ratios: errors are below 1e-4."""
    tail = np.geomspace(TAIL, 1.0 / len(ordered), 60)
    levels = np.concatenate([np.linspace(0.0, 1.0, 501), tail, 1.0 - tail])
    points = np.unique(np.quantile(ordered, levels))
    return points, np.asarray(cdf(points))


def printed_law(linear, beta):
    """Return the law with the covariance as printed: the Lyapunov equation without the factor beta^2."""
    stable = beta * linear.drift - np.eye(len(linear.curvatures)) / 2.0
    return linear.gap_law(np.asarray(solve_continuous_lyapunov(stable, linear.noise), dtype=np.float64))
