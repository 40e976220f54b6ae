"""U16: where training with standardised rewards converges.

There is a K3 penalty in the loss. Mean updates are compared with gradients of objectives, and the ends of runs with the maximiser
of the corrected one. In the control rewards are not divided.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import distance, exact
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.seeds import seed_of
from simulations.sequence.divergences import Numbers, gradient, token_logs
from simulations.sequence.parts import composed
from simulations.sequence.standardised import STANDARDISED, ascended
from simulations.statements import stated

U16, PRINTED, CORRECTED, SIMULATED = stated("U16", "U16/printed", "U16/corrected", "U16/simulated")

PROBLEMS = ("kl-tabular", "kl-linear")
GROUP_SIZES = (2, 4, 8, 64)
BATCH_SIZE, STEPS = 4, 2000
RUNS, QUICK_RUNS = 512, 128
POINTS, SPREAD = 5, 0.5
"""How many policies the mean update is compared at, and how far apart they are."""
MARGIN = 0.01
"""Relative: it distinguishes a success rate of 50% from one of 50.5%, less than evaluations of trained models can show. After
finitely many updates runs are not at the maximiser, by order 1/n, so the statement is a bound and not an equality."""
ESTIMATORS = {
    "standardised": composed(STANDARDISED, "none", kl="k3 in loss"),
    "undivided": composed("rloo", "none", kl="k3 in loss"),
}
"""The algorithm, and broken: the same without the division."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem and group size; quick takes the smallest and the largest."""
    common = {"batch_size": BATCH_SIZE, "steps": STEPS, "runs": QUICK_RUNS if quick else RUNS}
    sizes = (GROUP_SIZES[0], GROUP_SIZES[-1]) if quick else GROUP_SIZES
    return [Cell({"problem": name, "group_size": size} | common) for name in PROBLEMS for size in sizes]


def objective(problem: gt.Problem, group_size: int | None, printed_penalty: bool) -> Callable[[Numbers], Any]:
    """Return E[h(V)] less kappa times a divergence as a function of the log probabilities (M, K).

    Parameters
    ----------
    problem : Problem
        With a penalty, whose strength is kappa and whose reference is pi_ref.
    group_size : int or None
        h is h_G, which groups of this size climb, or 2 arcsin sqrt, as printed.
    printed_penalty : bool
        Whether the divergence is KL(pi || pi_ref), as printed, or KL(pi_ref || pi), which the K3 term in the loss descends.
    """

    def value(logs: Numbers) -> Any:
        pi, (strength, reference) = np.exp(logs), _penalty(problem)
        success = _success(problem, pi)
        climbed = 2.0 * np.arcsin(np.sqrt(success)) if group_size is None else ascended(success, group_size)
        apart = logs - np.log(reference)
        divergence = (pi * apart if printed_penalty else -reference * apart).sum(axis=1)
        return problem.bandit.prompt_weights @ (climbed - strength * divergence)

    return value


def corrected_objective(problem: gt.Problem, group_size: int) -> Callable[[Numbers], Any]:
    """Return E[h_G(V)] - kappa KL(pi_ref || pi) as a function of the log probabilities (M, K)."""
    return objective(problem, group_size, printed_penalty=False)


def _penalty(problem: gt.Problem) -> tuple[float, Array]:
    assert problem.kl is not None
    return problem.kl.strength, np.asarray(problem.kl.reference)


def _success(problem: gt.Problem, probabilities: Numbers) -> Numbers:
    return (probabilities * problem.bandit.mean_reward).sum(axis=-1)


def maximise(problem: gt.Problem, climbed: Callable[[Numbers], Any]) -> Array:
    """Return the parameters (d,) that maximise a function of the log probabilities, from 0."""

    def loss(theta: Array) -> float:
        return -float(np.real(climbed(token_logs(problem, theta.astype(np.complex128)))))

    def slope(theta: Array) -> Array:
        return -gradient(problem, climbed, theta)

    return np.asarray(minimize(loss, np.zeros(problem.policy.dimension), jac=slope, method="BFGS", options={"gtol": 1e-9}).x)


@cache
def _limit(name: str, group_size: int) -> tuple[Array, float, int]:
    """Return where the corrected objective is highest, and a step scale 2/lambda_min with an offset that keeps steps stable."""
    problem = gt.gallery.problem(name)
    climbed = corrected_objective(problem, group_size)
    best = maximise(problem, climbed)
    steps = 1e-5 * np.eye(best.size)
    hessian = np.array([gradient(problem, climbed, best + step) - gradient(problem, climbed, best - step) for step in steps])
    curvatures = np.linalg.eigvalsh(-(hessian + hessian.T) / 4e-5)
    scale = 2.0 / curvatures[curvatures > 1e-6 * curvatures[-1]][0]
    return best, float(scale), int(20.0 * scale * curvatures[-1]) + 200


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Compare mean updates with the objectives' gradients, and the ends of runs with the corrected objective's maximiser."""
    seed = seed_of(rng)
    problem, size = gt.gallery.problem(settings["problem"]), settings["group_size"]
    printed = maximise(problem, objective(problem, None, printed_penalty=True))
    corrected, scale, offset = _limit(settings["problem"], size)
    points = SPREAD * np.random.default_rng(seed).normal(size=(POINTS, problem.policy.dimension))
    slopes = [gradient(problem, corrected_objective(problem, size), point) for point in points]
    success, table = _mean_success(problem, corrected), []
    for name, chosen in ESTIMATORS.items():
        sizes = {"batch_size": 1, "group_size": size}
        gaps = [gt.gradient_mean(problem, at, chosen, **sizes) - slope for at, slope in zip(points, slopes, strict=True)]
        runs = gt.simulate_training(
            problem,
            problem.theta,
            chosen,
            gt.Harmonic(scale, offset),
            batch_size=settings["batch_size"],
            group_size=size,
            steps=settings["steps"],
            replications=settings["runs"],
            rng=seed,
            workers=1,
        )
        at_printed = float(np.abs(gt.gradient_mean(problem, printed, chosen, **sizes)).max())
        ends = np.array([_mean_success(problem, theta) for theta in runs.theta])
        table += [
            {"kernel": name, "quantity": "at printed", "prediction": 0.0, "estimate": at_printed, **EXACT},
            {"kernel": name, "quantity": "gap", "prediction": 0.0, "estimate": float(np.abs(gaps).max()), **EXACT},
            {"kernel": name, "quantity": "success", "prediction": success, **summary(ends)},
        ]
    common = {"printed_success": _mean_success(problem, printed), **apart(problem, size)}
    return {"common": common, "rows": table}


def apart(problem: gt.Problem, size: int) -> dict[str, float]:
    """Return the mean success at the maximisers of objectives of which one part is corrected and the other as printed.

    What groups of finite size change, with the printed penalty; and what the other divergence changes, with groups without end.
    """
    changed = {"groups_alone": (size, True), "penalty_alone": (None, False)}
    return {name: _mean_success(problem, maximise(problem, objective(problem, *parts))) for name, parts in changed.items()}


def _mean_success(problem: gt.Problem, theta: Array) -> float:
    return float(problem.bandit.prompt_weights @ _success(problem, problem.at(theta).probabilities))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each kernel and quantity: the update at the printed maximiser, the gap, and where runs end."""
    common = {name: settings[name] for name in ("problem", "group_size", "batch_size", "steps")} | results[0]["common"]
    return [common | row for row in results[0]["rows"]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Each row of the algorithm; the control is the kernel that does not divide, sent the same way."""
    for (problem, size), part in table.groupby(["problem", "group_size"], sort=False):
        at = part.set_index(["quantity", "kernel"])
        where, row = f"{problem} (G = {size})", at.loc[("success", "standardised")]
        facts = {
            "success at the printed maximiser": row["printed_success"],
            "with groups of this size alone": row["groups_alone"],
            "with the penalty that is descended alone": row["penalty_alone"],
            "success at the corrected one": row["prediction"],
        }
        for statement, quantity in ((PRINTED, "at printed"), (CORRECTED, "gap")):
            own, control = (exact(at.loc[(quantity, kernel), "estimate"], 0.0) for kernel in ESTIMATORS)
            yield statement.claim(where, own, control, facts=facts)
        ends = (at.loc[("success", kernel)] for kernel in ESTIMATORS)
        own, control = (distance(end, end["prediction"], MARGIN) for end in ends)
        yield SIMULATED.claim(where, own, control, facts=facts)
