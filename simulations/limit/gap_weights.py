"""U11 to U13: the weights of the limit law, exactly: against the group size, the baseline, the number of prompts, and n."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm

import grpo_theory as gt
from grpo_theory.evidence import Claim, log_log_slope
from grpo_theory.exact import check_optimum
from grpo_theory.theory import Linearisation, gap_recursion, leave_one_out_covariance, limit_covariance
from simulations.claims import claim
from simulations.harness.evidence import exact
from simulations.harness.maximum import maximum
from simulations.harness.study import Cell, Rows, Settings, Study

PROBLEMS = ("kl-tabular", "kl-linear", "conflict", "single")
BASELINES = ("reinforce", "optimal")
FACTOR = 2.0
GROUP_SIZES = (8, 16, 32, 64)
CROWDS = (2, 4, 8, 16, 32, 64)
SLOW_FACTORS = (0.6, 0.75, 1.0)
STEPS, OFFSET = 1 << 13, 512


def cells(quick: bool) -> list[Cell]:
    """Exact, so quick is no different."""
    problems = [
        Cell({"part": part, "problem": problem})
        for part, names in (
            ("group size", PROBLEMS),
            ("baseline", (*PROBLEMS, "indifferent")),
            ("transient", ("kl-tabular", "conflict")),
        )
        for problem in names
    ]
    return [*problems, *(Cell({"part": "comparable", "prompts": prompts}) for prompts in CROWDS)]


def _law(problem: gt.Problem, best: np.ndarray, noise: np.ndarray) -> gt.WeightedChiSquare:
    """Return the limit law of an unbiased estimator with the given covariance, at beta = 2/lambda_min."""
    curvatures, directions = check_optimum(problem, best)
    linear = Linearisation(curvatures, directions, np.diag(curvatures), directions.T @ noise @ directions)
    return linear.gap_law(limit_covariance(linear, FACTOR / curvatures.min()))


def _noise(problem: gt.Problem, best: np.ndarray, estimator: str, group_size: int) -> np.ndarray:
    """Covariance of one prompt's estimate; with a prompt-only baseline b + s/G, from the exact values at G = 1 and 2."""
    if estimator == "rloo":
        return leave_one_out_covariance(problem, best, batch_size=1, group_size=group_size)
    one, two = (gt.gradient_covariance(problem, best, estimator, batch_size=1, group_size=size) for size in (1, 2))
    return one - 2.0 * (one - two) * (1.0 - 1.0 / group_size)


def _by_group_size(name: str) -> Rows:
    problem, best, _ = maximum(name)
    found = []
    for size in GROUP_SIZES:
        own, oracle = (_law(problem, best, _noise(problem, best, estimator, size)).weights for estimator in ("rloo", "oracle"))
        found.append({"quantity": "rloo - oracle", "group_size": size, "estimate": float(np.abs(own - oracle).max())})
    return found


def dependence(problem: gt.Problem, best: np.ndarray) -> float:
    """Return the largest ||Cov(Q'WW'Q, Z | x)|| / (sd(Z | x) sqrt(E[||Q'W||^4 | x])): 0 under Corollary 10's assumption."""
    _, directions = check_optimum(problem, best)
    point = problem.at(best)
    p, centred = point.outcome_probabilities, point.rewards - point.moments.value[:, None]
    scores = problem.policy.scores(best)[:, point.outcome_responses] @ directions
    covariance = np.einsum("mo,mo,moi,moj->mij", p, centred, scores, scores)
    power = np.einsum("moi,moi->mo", scores, scores)
    scale = np.sqrt((p * centred**2).sum(axis=1) * (p * power**2).sum(axis=1))
    return float((np.linalg.norm(covariance, axis=(1, 2)) / scale).max())


def _by_baseline(name: str) -> Rows:
    problem, best, _ = maximum(name)
    oracle = _law(problem, best, _noise(problem, best, "oracle", 4)).weights
    found = []
    for baseline in BASELINES:
        other = _law(problem, best, _noise(problem, best, baseline, 4)).weights
        ratio = float((oracle / other).max())
        found.append({"quantity": baseline, "dependence": dependence(problem, best), "estimate": ratio})
    return found


def _by_prompts(prompts: int) -> Rows:
    """The largest distance of the standardised law from the normal, and what its skewness predicts."""
    problem = gt.gallery.crowd(prompts)
    best = gt.find_optimum(problem, problem.theta)
    law = _law(problem, best, _noise(problem, best, "rloo", 4))
    points = np.linspace(-3.0, 4.0, 701)
    distance = np.abs(law.cdf(law.mean() + law.std() * points) - norm.cdf(points)).max()
    skewness = 2.0**1.5 * (law.weights**3).sum() / (law.weights**2).sum() ** 1.5
    prediction = float(skewness / (6.0 * np.sqrt(2.0 * np.pi)))
    return [{"quantity": "distance", "prompts": prompts, "estimate": float(distance), "prediction": prediction}]


def _by_step(name: str) -> Rows:
    """The shortfall of E n Delta from its limit, started at the maximiser, direction by direction, and when it is below 5%."""
    problem, best, _ = maximum(name)
    curvatures, directions = check_optimum(problem, best)
    noise = directions.T @ _noise(problem, best, "rloo", 4) @ directions
    n = 2 ** np.arange(10, int(np.log2(STEPS)) + 1)
    found = []
    for factor in SLOW_FACTORS:
        beta = factor / curvatures.min()
        steps = gt.Harmonic(beta, OFFSET).steps(STEPS)
        limits, shortfalls = [], []
        for k, curvature in enumerate(curvatures):
            alone = Linearisation(curvatures[[k]], directions[:, [k]], np.array([[curvature]]), noise[[k]][:, [k]])
            limits.append(alone.gap(limit_covariance(alone, beta)))
            shortfalls.append(1.0 - (n + OFFSET) * gap_recursion(alone, steps, np.zeros((1, 1)))[n - 1] / limits[-1])
        shares = np.array(limits) / np.sum(limits)
        set_in = _set_in(shares * [shortfall[0] for shortfall in shortfalls], 2.0 * beta * curvatures - 1.0, n[0] + OFFSET)
        slowest = shortfalls[int(curvatures.argmin())]
        found += [
            {"quantity": "shortfall", "factor": factor, "n": int(at) + OFFSET, "estimate": float(value), "set_in": set_in}
            for at, value in zip(n, slowest, strict=True)
        ]
    return found


def _set_in(shortfalls: np.ndarray, exponents: np.ndarray, n: float) -> float:
    """Return the n at which sum_k s_k (n_0/n)^(exponent_k) is 5%, given the terms s_k at n_0."""
    return float(n * np.exp(brentq(lambda x: shortfalls @ np.exp(-exponents * x) - 0.05, -20.0, 200.0)))


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> Rows:
    """Compute one part, exactly."""
    if settings["part"] == "comparable":
        return _by_prompts(settings["prompts"])
    parts = {"group size": _by_group_size, "baseline": _by_baseline, "transient": _by_step}
    return parts[settings["part"]](settings["problem"])


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each quantity."""
    common = {"part": settings["part"], "problem": settings.get("problem", "crowd"), "prediction": np.nan}
    return [common | row | {"standard_error": 0.0, "replications": 0} for row in results[0]]


def _rate(statement: str, setting: str, x: Any, y: Any, exponent: float, wrong: float) -> Claim:
    slope, _ = log_log_slope(x, y)
    return claim(statement, setting, *(exact(slope, value, 0.15 * abs(exponent)) for value in (exponent, wrong)))


def _baseline_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    """No baseline has a smaller weight than the oracle; the control wants the oracle's at most half of the baseline's."""
    found = []
    for _, row in part.iterrows():
        statement = "U13" if row["dependence"] < 1e-10 else "U13/correlated"
        bounds = (exact(row["estimate"], bound) for bound in (1.0, 0.5))
        facts = {"dependence of Q'WW'Q and Z": row["dependence"]}
        found.append(claim(statement, f"{problem} ({row['quantity']})", *bounds, facts=facts))
    return found


def _crowd_claims(part: pd.DataFrame) -> list[Claim]:
    """The distance from the normal against what the skewness predicts, and its rate."""
    last = part.iloc[-1]
    gaps = (exact(abs(last["estimate"] / (factor * last["prediction"]) - 1.0), 0.01) for factor in (1.0, 1.25))
    shape = (part["prompts"], part["estimate"], -0.5, -1.0)
    return [
        claim("U11/skewness", "crowd (64 prompts)", *gaps),
        _rate("U11/comparable", "crowd (2 to 64 prompts)", *shape),
    ]


def _transient_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    found = []
    for factor, curve in part.groupby("factor"):
        exponent, where = 1.0 - 2.0 * float(str(factor)), f"{problem} (beta lambda_min = {factor:g})"
        found.append(_rate("U11/transient", where, curve["n"], curve["estimate"], exponent, 2.0 * exponent))
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the rates and the orderings off the table."""
    found = []
    for (part, name), group in table.groupby(["part", "problem"], sort=False):
        problem = str(name)
        if part == "group size":
            found.append(_rate("U12", problem, group["group_size"], group["estimate"], -2.0, -1.0))
        elif part == "baseline":
            found += _baseline_claims(problem, group)
        elif part == "transient":
            found += _transient_claims(problem, group)
        else:
            found += _crowd_claims(group)
    return found


STUDY = Study(
    "gap_weights",
    "U11 to U13: the weights of the limit law, exact",
    cells,
    compute,
    rows,
    claims,
    ("U11/transient", "U11/skewness", "U11/comparable", "U12", "U13", "U13/correlated"),
)
