"""Which estimator for which question.

Direction, efficiency, uniform groups and old policies, for responses of several lengths.  No statement is decided here: the
table says what the other studies say, estimator by estimator.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.estimation import find
from grpo_theory.harness.study import Cell, Settings
from simulations.gradient.groups import advantages_of
from simulations.seeds import seed_of
from simulations.sequence.parts import cosine, of_length

PROBLEM = "sequence-shared"
ESTIMATORS = (
    "reinforce",
    "oracle",
    "optimal",
    "rloo",
    "james_stein",
    "dr_grpo",
    "verl_opo",
    "grpo",
    "trl_grpo_batch",
    "verl_reinforce_plus_plus_baseline",
    "nemo_rl",
    "max_rl",
    "verl_grpo_passk",
    "grpo_without_ratio",
    "trl_grpo_loss",
    "trl_dr_grpo_loss",
    "dapo",
    "cispo",
    "gspo",
    "trl_rloo_loss",
    "tic_grpo",
)
"""Those that differ; what else is registered has the formula of one of them."""
BATCH_SIZE, GROUP_SIZE = 4, 8
UPDATES, STEPS = 4, {"small": 0.025, "large": 0.1}
"""The old policy is four steps along the gradient behind the current one.  After small ones tokens' ratios are within about 0.2
of 1, where clips begin to act; after large ones most clips do."""
REPLICATIONS = 1 << 18


def cells(quick: bool) -> list[Cell]:
    """One cell for each estimator."""
    common = {"problem": PROBLEM, "batch_size": BATCH_SIZE, "group_size": GROUP_SIZE, "updates": UPDATES, "steps": STEPS}
    replications = REPLICATIONS >> (3 if quick else 0)
    return [Cell(common | {"estimator": name, "replications": replications}) for name in ESTIMATORS]


def compare(settings: Settings, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Answer each question for one estimator, exactly where its groups do not depend on each other, else by simulation."""
    seed = seed_of(rng)
    problem, name = gt.gallery.problem(settings["problem"]), settings["estimator"]
    here = problem.at(problem.theta).moments.gradient
    mean, error = _mean(problem, problem.theta, settings, seed)
    answers = {
        "cosine": (cosine(mean, here), error / float(np.linalg.norm(mean))),
        "efficiency": _efficiency(problem, settings, seed),
        "uniform": (uniform_advantage(name, settings["group_size"]), 0.0),
        **{f"after {size} steps": _off_policy(problem, step, settings, seed) for size, step in settings["steps"].items()},
    }
    common = {"problem": settings["problem"], "estimator": name, **_sizes(settings)}
    for question, (answer, error) in answers.items():
        row = {"quantity": question, "estimate": answer, "standard_error": error}
        yield common | row | {"replications": settings["replications"] if error else 0}


def _off_policy(problem: gt.Problem, step: float, settings: Settings, seed: np.random.SeedSequence) -> tuple[float, float]:
    """Return the cosine of the mean update and the gradient, some steps after the responses were drawn, and its error."""
    theta = np.array(problem.theta)
    for _ in range(settings["updates"]):
        gradient = problem.at(theta).moments.gradient
        theta = theta + of_length(step, gradient)
    mean, error = _mean(problem, theta, settings, seed, behaviour=problem.theta)
    return cosine(mean, problem.at(theta).moments.gradient), error / float(np.linalg.norm(mean))


def _sizes(settings: Settings) -> dict[str, int]:
    return {name: settings[name] for name in ("batch_size", "group_size")}


def _efficiency(problem: gt.Problem, settings: Settings, seed: np.random.SeedSequence) -> tuple[float, float]:
    """Return the efficiency relative to that of the oracle with the value baseline, and its error, 0 if it is exact."""
    estimator = find(settings["estimator"])
    ideal = gt.efficiency(problem, problem.theta, "oracle", **_sizes(settings))
    if not estimator.couples_groups:
        return gt.efficiency(problem, problem.theta, estimator, **_sizes(settings)) / ideal, 0.0
    run = _simulation(problem, problem.theta, settings, seed)
    return float(run.efficiency[0]) / ideal, float(run.efficiency_standard_error[0]) / ideal


def _mean(
    problem: gt.Problem, theta: Array, settings: Settings, seed: np.random.SeedSequence, behaviour: Array | None = None
) -> tuple[Array, float]:
    """Return the mean (d,), and the standard error of its length, 0 if it is exact."""
    estimator = find(settings["estimator"])
    if not estimator.couples_groups:
        return gt.gradient_mean(problem, theta, estimator, **_sizes(settings), behaviour=behaviour), 0.0
    run = _simulation(problem, theta, settings, seed, behaviour)
    return run.along[0], float(np.sqrt((run.along_standard_error[0] ** 2).sum()))


def _simulation(
    problem: gt.Problem, theta: Array, settings: Settings, seed: np.random.SeedSequence, behaviour: Array | None = None
) -> gt.GradientSimulation:
    return gt.simulate_gradients(
        problem,
        theta,
        settings["estimator"],
        **_sizes(settings),
        replications=settings["replications"],
        rng=seed,
        workers=1,
        behaviour=behaviour,
        directions=np.eye(theta.size),
    )


def uniform_advantage(name: str, group_size: int) -> float:
    """Return the largest advantage in groups of equal rewards, in size; NaN for oracles, which know more.

    Two groups of the batch are uniform, all wrong and all right. Two are mixed, with half and with one of the responses right,
    because some kernels look at the other groups.
    """
    if find(name).reads & {"values", "optimal_baselines"}:
        return float("nan")
    right = np.array([0, group_size, group_size // 2, 1])
    rewards = (np.arange(group_size) < right[:, None]).astype(np.float64)
    return float(np.abs(advantages_of(name, rewards)[:2]).max())
