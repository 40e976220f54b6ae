"""U11 to U13: the weights of the limit law, exactly: against the group size, the baseline, the number of prompts, and n."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import norm

import grpo_theory as gt
from grpo_theory.exact.outcomes import outcomes
from grpo_theory.gallery import Problem
from grpo_theory.inference import Claim, Evidence, log_log_slope
from grpo_theory.theory import Linearisation, check_optimum, gap_recursion, leave_one_out_covariance, limit_covariance
from simulations.limit_law import optimum
from simulations.study import Cell, Rows, Settings, Study

SOURCE = "arXiv 2603.01162"
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


def _law(problem: Problem, best: np.ndarray, noise: np.ndarray) -> gt.WeightedChiSquare:
    """Return the limit law of an unbiased estimator with the given covariance, at beta = 2/lambda_min."""
    curvatures, directions = check_optimum(problem.bandit, problem.policy, best, problem.kl)
    linear = Linearisation(curvatures, directions, np.diag(curvatures), directions.T @ noise @ directions)
    return linear.gap_law(limit_covariance(linear, FACTOR / curvatures.min()))


def _noise(problem: Problem, best: np.ndarray, estimator: str, group_size: int) -> np.ndarray:
    """Covariance of one prompt's estimate; with a prompt-only baseline b + s/G, from the exact values at G = 1 and 2."""
    where = (problem.bandit, problem.policy, best)
    if estimator == "rloo":
        return leave_one_out_covariance(*where, batch_size=1, group_size=group_size, kl=problem.kl)
    one, two = (gt.gradient_covariance(*where, estimator, batch_size=1, group_size=size, kl=problem.kl) for size in (1, 2))
    return one - 2.0 * (one - two) * (1.0 - 1.0 / group_size)


def _by_group_size(name: str) -> Rows:
    problem, best, _ = optimum(name)
    found = []
    for size in GROUP_SIZES:
        own, oracle = (_law(problem, best, _noise(problem, best, estimator, size)).weights for estimator in ("rloo", "oracle"))
        found.append({"quantity": "rloo - oracle", "group_size": size, "estimate": float(np.abs(own - oracle).max())})
    return found


def dependence(problem: Problem, best: np.ndarray) -> float:
    """Return the largest ||Cov(Q'WW'Q, Z | x)|| / (sd(Z | x) sqrt(E[||Q'W||^4 | x])): 0 under Corollary 10's assumption."""
    _, directions = check_optimum(problem.bandit, problem.policy, best, problem.kl)
    table = outcomes(problem.bandit, problem.policy, best, problem.kl)
    scores = problem.policy.scores(best)[:, table.responses] @ directions
    centred = table.rewards - np.einsum("mo,mo->m", table.probabilities, table.rewards)[:, None]
    covariance = np.einsum("mo,mo,moi,moj->mij", table.probabilities, centred, scores, scores)
    power = np.einsum("moi,moi->mo", scores, scores)
    scale = np.sqrt((table.probabilities * centred**2).sum(axis=1) * (table.probabilities * power**2).sum(axis=1))
    return float((np.linalg.norm(covariance, axis=(1, 2)) / scale).max())


def _by_baseline(name: str) -> Rows:
    problem, best, _ = optimum(name)
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
    best = gt.find_optimum(problem.bandit, problem.policy, problem.theta, problem.kl)
    law = _law(problem, best, _noise(problem, best, "rloo", 4))
    points = np.linspace(-3.0, 4.0, 701)
    distance = np.abs(law.cdf(law.mean() + law.std() * points) - norm.cdf(points)).max()
    skewness = 2.0**1.5 * (law.weights**3).sum() / (law.weights**2).sum() ** 1.5
    prediction = float(skewness / (6.0 * np.sqrt(2.0 * np.pi)))
    return [{"quantity": "distance", "prompts": prompts, "estimate": float(distance), "prediction": prediction}]


def _by_step(name: str) -> Rows:
    """The shortfall of E n Delta from its limit, started at the maximiser, direction by direction, and when it is below 5%."""
    problem, best, _ = optimum(name)
    curvatures, directions = check_optimum(problem.bandit, problem.policy, best, problem.kl)
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
    """One row a quantity."""
    return [{"part": settings["part"], "problem": settings.get("problem", "crowd"), **row} for row in results[0]]


def _rate(key: str, source: str, statement: str, problem: str, x: Any, y: Any, exponent: float, wrong: float) -> Claim:
    slope, _ = log_log_slope(x, y)
    evidence, control = (Evidence(slope, value, margin=0.15 * abs(exponent)) for value in (exponent, wrong))
    return Claim(key, source, statement, "rate", problem, evidence, control)


def _baseline_claims(problem: str, part: pd.DataFrame) -> list[Claim]:
    """No baseline has a smaller weight than the oracle; the control wants the oracle's at most half of the baseline's."""
    statement = "no prompt-only baseline has smaller weights than the oracle: max_k w_k(oracle)/w_k(baseline) <= 1"
    found = []
    for _, row in part.iterrows():
        uncorrelated = row["dependence"] < 1e-10
        found.append(
            Claim(
                "U13" if uncorrelated else "U13/correlated",
                f"{SOURCE}, Corollary 10" if uncorrelated else f"beyond {SOURCE}, Corollary 10",
                statement if uncorrelated else f"{statement}, though Q'WW'Q and Z are correlated",
                "upper bound",
                f"{problem} ({row['quantity']})",
                Evidence(row["estimate"], 1.0),
                Evidence(row["estimate"], 0.5),
                {"dependence of Q'WW'Q and Z": row["dependence"]},
            )
        )
    return found


def claims(table: pd.DataFrame) -> list[Claim]:
    """Read the rates and the orderings off the table."""
    found = []
    derivations = "docs/derivations.md, 6"
    for (part, name), group in table.groupby(["part", "problem"], sort=False):
        problem = str(name)
        if part == "group size":
            statement = "w_k(leave-one-out) - w_k(oracle) = O(G^-2), B fixed"
            where = f"{SOURCE}, Corollary 9"
            found.append(_rate("U12", where, statement, problem, group["group_size"], group["estimate"], -2.0, -1.0))
        elif part == "baseline":
            found += _baseline_claims(problem, group)
        elif part == "transient":
            statement = "the slowest part of E n Delta falls short of its limit by a multiple of n^-(2 beta lambda_min - 1)"
            for factor, curve in group.groupby("factor"):
                exponent, where = 1.0 - 2.0 * float(str(factor)), f"{problem} (beta lambda_min = {factor:g})"
                shape = (curve["n"], curve["estimate"], exponent, 2.0 * exponent)
                found.append(_rate("U11/transient", derivations, statement, where, *shape))
        else:
            statement = "distance of the standardised gap from the normal = skewness/(6 sqrt(2 pi)) within 1%"
            last = group.iloc[-1]
            near, far = (Evidence(abs(last["estimate"] / (factor * last["prediction"]) - 1.0), 0.01) for factor in (1.0, 1.25))
            found.append(Claim("U11/skewness", derivations, statement, "upper bound", "crowd (64 prompts)", near, far))
            shape = (group["prompts"], group["estimate"], -0.5, -1.0)
            statement = "the distance of the standardised gap from the normal falls as M^-1/2"
            found.append(_rate("U11/comparable", derivations, statement, "crowd (2 to 64 prompts)", *shape))
    return found


STUDY = Study("gap_weights", "U11 to U13: the weights of the limit law, exact", cells, compute, rows, claims)
