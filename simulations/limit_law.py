"""U11 and U12: the limit law of the suboptimality gap, by simulation of many training runs."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import solve_continuous_lyapunov
from scipy.stats import chi2

import grpo_theory as gt
from grpo_theory.gallery import Problem
from grpo_theory.inference import Claim, Evidence, log_log_slope
from grpo_theory.theory import Linearisation, check_optimum, leave_one_out_covariance, limit_covariance, linearise
from simulations.study import Cell, Rows, Settings, Study

SOURCE = "arXiv 2603.01162"
PROBLEMS = ("kl-tabular", "kl-linear", "conflict", "single")
STEPS = 2000
RUNS, QUICK_RUNS, CHUNK_RUNS = 81920, 2048, 2048
FACTOR = 2.0
GROUP_SIZES = (8, 16, 32, 64)
LAW_MARGIN, MEAN_MARGIN = 0.02, 0.02
LEVELS = np.linspace(0.005, 0.995, 100)


def cells(quick: bool) -> list[Cell]:
    """Long series for the leave-one-out estimator (and GRPO, on one prompt), shorter ones for its rivals."""
    estimators = dict.fromkeys(PROBLEMS, ("rloo", "oracle", "reinforce")) | {"single": ("rloo", "grpo")}
    found = []
    for problem, names in estimators.items():
        for name in names:
            runs = QUICK_RUNS if quick else RUNS if name in ("rloo", "grpo") else RUNS // 4
            settings = {"problem": problem, "estimator": name, "batch_size": 1, "group_size": 4, "factor": FACTOR}
            chunk = min(runs, CHUNK_RUNS)
            found.append(Cell(settings | {"steps": STEPS, "runs": chunk}, runs // chunk))
    return found


@cache
def optimum(name: str) -> tuple[Problem, np.ndarray, float]:
    """Return a training problem, its maximiser and the maximum."""
    problem = gt.gallery.training_problem(name)
    best = gt.find_optimum(problem.bandit, problem.policy, problem.theta, problem.kl)
    return problem, best, float(gt.objective(problem.bandit, problem.policy, best, problem.kl))


def _linearise(settings: Settings) -> Linearisation:
    problem, best, _ = optimum(settings["problem"])
    sizes = {name: settings[name] for name in ("batch_size", "group_size")}
    return linearise(problem.bandit, problem.policy, best, settings["estimator"], **sizes, kl=problem.kl)


def _scale(linear: Linearisation, factor: float) -> tuple[float, int]:
    """Return beta = factor / lambda_min of the estimator's drift, and an offset that keeps the first steps stable."""
    beta = factor / linear.slowest
    return beta, int(20.0 * beta * np.abs(np.linalg.eigvals(linear.drift)).max()) + 200


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Mapping[str, Any]:
    """Train from the maximiser; return (n + offset) times the gap, and the squared Mahalanobis distance, of each run."""
    problem, best, highest = optimum(settings["problem"])
    linear = _linearise(settings)
    beta, offset = _scale(linear, settings["factor"])
    key = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, chunk))
    training = gt.simulate_training(
        problem.bandit,
        problem.policy,
        best,
        settings["estimator"],
        gt.Harmonic(beta, offset),
        batch_size=settings["batch_size"],
        group_size=settings["group_size"],
        steps=settings["steps"],
        replications=settings["runs"],
        rng=key,
        workers=1,
        kl=problem.kl,
    )
    scale = settings["steps"] + offset
    deviation = np.sqrt(scale) * (training.theta - best) @ linear.directions
    inverse = np.linalg.inv(limit_covariance(linear, beta))
    return {
        "gap": (scale * (highest - training.objectives[:, 0])).tolist(),
        "distance": np.einsum("ri,ij,rj->r", deviation, inverse, deviation).tolist(),
        "diverged": int(training.diverged.sum()),
    }


def kolmogorov_distance(sample: np.ndarray, cdf: Any) -> float:
    """Return the largest distance between the sample's distribution function and a law's."""
    ordered = np.sort(sample)
    expected = np.interp(ordered, *_tabulated(cdf, ordered))
    n = len(ordered)
    return float(np.max(np.maximum(np.arange(1, n + 1) / n - expected, expected - np.arange(n) / n)))


def _tabulated(cdf: Any, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate a distribution function on the sample's own quantiles, dense enough for errors below 1e-4."""
    points = np.unique(np.quantile(ordered, np.linspace(0.0, 1.0, 251)))
    return points, np.asarray(cdf(points))


def printed_law(linear: Linearisation, beta: float) -> gt.WeightedChiSquare:
    """Return the law with the covariance as printed: the Lyapunov equation without the factor beta^2."""
    stable = beta * linear.drift - np.eye(len(linear.curvatures)) / 2.0
    return linear.gap_law(np.asarray(solve_continuous_lyapunov(stable, linear.noise), dtype=np.float64))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row a quantity: mean, distances to the laws, and the quantiles for the QQ plot."""
    gap = np.concatenate([result["gap"] for result in results])
    distance = np.concatenate([result["distance"] for result in results])
    linear = _linearise(settings)
    beta, offset = _scale(linear, settings["factor"])
    law, printed = linear.gap_law(limit_covariance(linear, beta)), printed_law(linear, beta)
    wrong = gt.WeightedChiSquare(1.25 * law.weights)
    names = ("problem", "estimator", "batch_size", "group_size", "steps")
    common = {name: settings[name] for name in names} | {"beta": beta, "offset": offset, "replications": len(gap)}
    common["diverged"] = sum(result["diverged"] for result in results)
    error = float(gap.std(ddof=1) / np.sqrt(len(gap)))
    rank = len(linear.curvatures)
    quantities = [
        ("mean", float(gap.mean()), law.mean(), error),
        ("law", kolmogorov_distance(gap, law.cdf), 0.0, 0.0),
        ("printed law", kolmogorov_distance(gap, printed.cdf), 0.0, 0.0),
        ("wrong law", kolmogorov_distance(gap, wrong.cdf), 0.0, 0.0),
        ("normal", kolmogorov_distance(distance, chi2(rank).cdf), 0.0, 0.0),
        ("wrong normal", kolmogorov_distance(distance, chi2(rank + 1).cdf), 0.0, 0.0),
    ]
    found = [
        common | {"quantity": name, "level": np.nan, "estimate": estimate, "prediction": prediction, "standard_error": se}
        for name, estimate, prediction, se in quantities
    ]
    for level, estimate, prediction in zip(LEVELS, np.quantile(gap, LEVELS), law.ppf(LEVELS), strict=True):
        quantile = {"quantity": "quantile", "level": level, "estimate": float(estimate), "prediction": float(prediction)}
        found.append(common | quantile | {"standard_error": 0.0})
    if settings["estimator"] == "rloo":
        found += [common | row for row in _exact_rows(settings)]
    return found


def _oracle_noise(settings: Settings, group_size: int) -> np.ndarray:
    """Covariance of the oracle's estimate: b + s/G, with b and s from the exact values at G = 1 and 2."""
    problem, best, _ = optimum(settings["problem"])
    where = (problem.bandit, problem.policy, best, "oracle")
    one, two = (
        gt.gradient_covariance(*where, batch_size=settings["batch_size"], group_size=size, kl=problem.kl) for size in (1, 2)
    )
    return one - 2.0 * (one - two) * (1.0 - 1.0 / group_size)


def _exact_rows(settings: Settings) -> Rows:
    """The largest difference of the weights at each group size, leave-one-out less oracle, exact."""
    problem, best, _ = optimum(settings["problem"])
    curvatures, directions = check_optimum(problem.bandit, problem.policy, best, problem.kl)
    beta = FACTOR / curvatures.min()

    def weights(noise: np.ndarray) -> np.ndarray:
        linear = Linearisation(curvatures, directions, np.diag(curvatures), directions.T @ noise @ directions)
        return linear.gap_law(limit_covariance(linear, beta)).weights

    found = []
    for size in GROUP_SIZES:
        sizes = {"batch_size": settings["batch_size"], "group_size": size}
        own = weights(leave_one_out_covariance(problem.bandit, problem.policy, best, **sizes, kl=problem.kl))
        gaps = own - weights(_oracle_noise(settings, size))
        row = {"quantity": "weights: rloo - oracle", "group_size": size, "level": np.nan, "standard_error": 0.0}
        found.append(row | {"estimate": float(np.abs(gaps).max()), "prediction": 0.0})
    return found


def _law_claims(problem: str, estimator: str, part: pd.DataFrame) -> list[Claim]:
    at = part.set_index("quantity")
    replications = int(at.loc["law", "replications"])
    where = f"{problem} ({estimator})"

    def distance(name: str) -> Evidence:
        return Evidence(float(at.loc[name, "estimate"]), 0.0, margin=LAW_MARGIN, replications=replications)

    def mean(prediction: float) -> Evidence:
        row = at.loc["mean"]
        return Evidence(float(row["estimate"]), prediction, float(row["standard_error"]), MEAN_MARGIN, replications)

    printed = f"{SOURCE}, Theorem 8"
    corrected = "docs/derivations.md, 6"
    law = "n Delta(theta_n) -> sum w_k chi^2_1"
    exact = float(at.loc["mean", "prediction"])
    return [
        Claim("U11/printed", printed, f"{law}, S as printed", "law", where, distance("printed law"), distance("wrong law")),
        Claim(
            "U11/corrected", corrected, f"{law}, S with the factor beta^2", "law", where, distance("law"), distance("wrong law")
        ),
        Claim("U11/mean", corrected, "E n Delta(theta_n) = sum w_k", "equality", where, mean(exact), mean(1.25 * exact)),
        Claim(
            "U11/normal",
            printed,
            "sqrt(n) Q'(theta_n - theta*) is normal: its Mahalanobis distance is chi^2_r",
            "law",
            where,
            distance("normal"),
            distance("wrong normal"),
        ),
    ]


def _weight_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    found = part.set_index("quantity")
    gaps = found.loc["weights: rloo - oracle"]
    slope, _ = log_log_slope(gaps["group_size"], gaps["estimate"])
    evidence, control = (Evidence(slope, exponent, margin=0.15) for exponent in (-2.0, -1.0))
    statement = "w_k(leave-one-out) - w_k(oracle) = O(G^-2), B fixed"
    return [Claim("U12", f"{SOURCE}, Corollary 9", statement, "rate", problem, evidence, control)]


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the laws and the rates off the table."""
    found = []
    for (problem, estimator), part in table.groupby(["problem", "estimator"], sort=False):
        found += _law_claims(str(problem), str(estimator), part)
        if estimator == "rloo":
            found += _weight_claims(str(problem), part)
    return found


STUDY = Study("limit_law", "U11, U12: the limit law of the suboptimality gap", cells, compute, rows, claims)
