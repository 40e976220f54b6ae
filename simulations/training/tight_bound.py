"""U8: the bound where it is nearly tight, with the printed schedule.

There is one direction, curvature and noise change little over the ball, and epsilon is small. In the control the noise of the
bound is half of what it should be.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import evidence, highest
from grpo_theory.exact import Region, largest_error, longest_estimate, region
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.theory import harmonic_step_bound
from grpo_theory.theory.bounds import first_index
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training.grid import doubling
from simulations.training.lemma_6 import U8

PRINTED = stated("U8/printed")

PROBLEM = "one direction"
ESTIMATOR = "rloo"
SIZES: dict[str, Any] = {"batch_size": 1, "group_size": 4}
WRONG_SIZES = {"batch_size": 2, "group_size": 4}
"""The control's M is that of batches twice as large: half of what it should be."""
RADIUS, START = 0.1, 0.9
EPSILON = 0.1
FACTOR = 2.0
"""beta mu: the mean gap has forgotten its start after some hundred steps."""
OFFSETS = (0, 16)
STEPS = 1024
CONSTANTS = {"L": "L", "mu": "mu", "M": "M", "M of the control": "wrong_M", "steepest ray": "ray"}
"""The columns of the constants over the ball, by what the facts of a claim call them."""
RUNS, QUICK_RUNS, CHUNK_RUNS = 32_768, 16_384, 8192


def cells(quick: bool) -> list[Cell]:
    """The schedule as printed, beta/i, and with an offset."""
    settings = {"epsilon": EPSILON, "factor": FACTOR, "steps": STEPS, "runs": CHUNK_RUNS}
    return [Cell(settings | {"offset": offset}, (QUICK_RUNS if quick else RUNS) // CHUNK_RUNS) for offset in OFFSETS]


@cache
def one_direction() -> tuple[gt.Problem, np.ndarray, float]:
    """Return a prompt with two responses and a strong penalty, its maximiser and the maximum."""
    kl = gt.KL(0.5, np.full((1, 2), 0.5))
    problem = gt.Problem(gt.Bandit([[0.6, 0.5]]), gt.TabularSoftmax(1, 2), kl=kl, theta=np.zeros(2), name=PROBLEM)
    best = gt.find_optimum(problem, problem.theta)
    return problem, best, float(gt.objective(problem, best))


@cache
def surroundings(factor: float, epsilon: float, offset: int) -> tuple[Region, float]:
    """Return the constants over the ball, enlarged by the longest step that the induction uses, and beta.

    Up to the index n_0 the bound is at least the highest gap of the ball, whatever the steps. So L need not reach further than
    the step at n_0 does. As n_0 grows with L, it is taken from the L of the ball alone, the least it can be.
    """
    problem, best, _ = one_direction()
    ball = region(problem, best, radius=RADIUS, reach=1e-6)
    beta = factor / ball.pl
    first = max(first_index(2.0 * ball.pl * beta, ball.smoothness * ball.pl * beta**2, epsilon), 1 + offset)
    reach = beta / first * longest_estimate(problem, best, radius=RADIUS)
    return region(problem, best, radius=RADIUS, reach=reach), beta


@cache
def largest_noise(batch_size: int, group_size: int) -> float:
    """Return M over the ball."""
    problem, best, _ = one_direction()
    return largest_error(problem, best, ESTIMATOR, radius=RADIUS, batch_size=batch_size, group_size=group_size)


def predict(settings: Settings) -> dict[str, Any]:
    """Return the constants over the ball, and at the checkpoints the bound, and the bound with a noise that is too small."""
    ball, beta = surroundings(settings["factor"], settings["epsilon"], settings["offset"])
    n, noise, less = np.array(doubling(settings["steps"])), largest_noise(**SIZES), largest_noise(**WRONG_SIZES)
    bound, wrong = (
        harmonic_step_bound(ball, level, beta, n, offset=settings["offset"], epsilon=settings["epsilon"])
        for level in (noise, less)
    )
    constants = {"L": ball.smoothness, "mu": ball.pl, "M": noise, "wrong_M": less, "ray": ball.steepest_ray}
    return {"constants": constants, "bounds": {"n": n.tolist(), "prediction": bound.tolist(), "control": wrong.tolist()}}


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Train from near the edge of the ball, projected onto it; return sums and sums of squares of the gaps.

    The first chunk predicts the bounds too.
    """
    problem, best, highest = one_direction()
    _, beta = surroundings(settings["factor"], settings["epsilon"], settings["offset"])
    _, directions = gt.exact.check_optimum(problem, best)
    training = gt.simulate_training(
        problem,
        best + START * RADIUS * directions[:, 0],
        ESTIMATOR,
        gt.Harmonic(beta, settings["offset"]),
        **SIZES,
        steps=settings["steps"],
        replications=settings["runs"],
        rng=seed_of(rng),
        workers=1,
        checkpoints=doubling(settings["steps"]),
        ball=gt.Ball(best, RADIUS),
    )
    gaps = highest - training.objectives
    sums = {"sum": gaps.sum(axis=0).tolist(), "squares": (gaps**2).sum(axis=0).tolist()}
    return sums | {"prediction": predict(settings) if chunk == 0 else None}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint: the mean gap, its bound, and the bound with a noise that is too small."""
    predicted, runs = results[0]["prediction"], settings["runs"] * len(results)
    mean, squares = (np.sum([one[name] for one in results], axis=0) / runs for name in ("sum", "squares"))
    gaps = pd.DataFrame(predicted["bounds"]).assign(estimate=mean, standard_error=np.sqrt((squares - mean**2) / (runs - 1)))
    common = {"problem": PROBLEM, "offset": settings["offset"], "replications": runs, **predicted["constants"]}
    return [common | row for row in gaps.to_dict("records")]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """The bound at the checkpoint where it comes nearest to failing; the control's noise is half of what it should be."""
    for offset, part in table.groupby("offset", sort=False):
        own, control = (_nearest(part, bound) for bound in ("prediction", "control"))
        facts = {name: part[column].iloc[0] for name, column in CONSTANTS.items()}
        facts["bound over gap at the end"] = part["prediction"].iloc[-1] / part["estimate"].iloc[-1]
        statement, where = (PRINTED, "beta/i") if offset == 0 else (U8, f"beta/(i + {offset})")
        yield statement.claim(f"{PROBLEM} ({ESTIMATOR}), {where}", own, control, facts=facts)


def _nearest(gaps: pd.DataFrame, bound: str) -> Evidence:
    """Return the evidence of the checkpoint where a gap comes nearest to its bound in standard errors, the level shared."""
    ratios = gaps.assign(**{name: gaps[name] / gaps[bound] for name in ("estimate", "standard_error")})
    at = highest((ratios["estimate"] - 1.0) / ratios["standard_error"])
    return evidence(ratios.loc[at], 1.0, comparisons=len(ratios))
