"""R7: a step on the squared differences of regularised rewards is the group-relative update, for any samples, exact."""

from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Claim
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Rows, Settings
from simulations.claims import unconverted
from simulations.gradient.groups import estimate
from simulations.identities import gap_claims, gap_rows
from simulations.sequence.divergences import Numbers, gradient

PROBLEMS = ("tabular", "linear", "graded", "sequence-shared")
GROUPS, GROUP_SIZE, STRENGTH, DRIFT = 50, 6, 0.3, 0.5
STATEMENTS = (("R7", "at the sampler", "at the sampler, rloo"), ("R7/away", "away", "away, rloo"))
"""Statement, the discrepancy that it says is zero, and that of the control."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    settings = {"groups": GROUPS, "group_size": GROUP_SIZE, "strength": STRENGTH, "drift": DRIFT}
    return [Cell({"problem": name} | settings) for name in PROBLEMS]


def compute(settings: Settings, seed: np.random.SeedSequence, chunk: int) -> dict[str, float]:
    """Return the largest discrepancies, in units of a score times the rewards' spread, for groups that no policy would draw.

    Responses are drawn evenly from all there are, and rewards from a normal law, whatever the responses are.
    """
    problem, tau, size = gt.gallery.problem(settings["problem"]), settings["strength"], settings["group_size"]
    rng = np.random.default_rng(seed)
    step = rng.normal(size=problem.policy.dimension)
    then = problem.at(problem.theta)
    scale = np.sqrt(then.moments.score_power)
    places = {"at the sampler": then, "away": problem.at(problem.theta + settings["drift"] * step / np.linalg.norm(step))}
    worst: dict[str, float] = {}
    for _ in range(settings["groups"]):
        prompt = int(rng.integers(problem.bandit.n_prompts))
        responses = rng.integers(problem.bandit.n_responses, size=(size,))
        rewards = rng.normal(size=(size,))
        for place, here in places.items():
            drift = problem.policy.paths.along(here.token_log_probabilities - then.token_log_probabilities)
            regularised = rewards - tau * drift[prompt, responses]
            slope = _slope(problem, here, then, prompt, responses, rewards, tau)
            for kernel, name in (("dr_grpo", place), ("rloo", f"{place}, rloo")):
                covector = estimate(kernel, here.covectors[prompt, responses], regularised)
                update = _parameters(problem, prompt, covector)
                gap = np.linalg.norm(-slope / (2.0 * tau) - update) / (regularised.std() * scale[prompt])
                worst[name] = largest([worst.get(name, 0.0), gap])
    return worst


def _slope(
    problem: gt.Problem, here: gt.Point, then: gt.Point, prompt: int, responses: Integers, rewards: Array, tau: float
) -> Array:
    """Return the derivative of (1/K^2) sum_{i<j} (a_i - a_j)^2, a = r - tau log(pi/pi_0), by a step along the imaginary axis."""
    i, j = np.triu_indices(len(responses), 1)

    def loss(logs: Numbers) -> Any:
        drift = problem.policy.paths.along(logs - then.token_log_probabilities)[prompt, responses]
        a = rewards - tau * drift
        return ((a[i] - a[j]) ** 2).sum() / len(responses) ** 2

    return gradient(problem, loss, here.theta)


def _parameters(problem: gt.Problem, prompt: int, covector: Array) -> Array:
    """Return Phi_m' c, shape (d,), of one prompt's covector (D,)."""
    covectors = np.zeros((problem.bandit.n_prompts, len(covector)))
    covectors[prompt] = covector
    return problem.policy.logit_map.adjoint(covectors)


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each problem, place and kernel."""
    common = {"problem": settings["problem"], "group_size": settings["group_size"]}
    return gap_rows(common, "quantity", results[0])


def claims(table: pd.DataFrame) -> list[Claim]:
    """The update is that of the group mean with the own sample in it; the control is the leave-one-out mean, off by 1/(K-1)."""
    return gap_claims(table, "quantity", STATEMENTS)


STUDY = unconverted(
    "pairwise_loss",
    "R7: the pairwise loss and the group-relative update, exact",
    cells,
    compute,
    rows,
    claims,
    tuple(statement for statement, *_ in STATEMENTS),
)
