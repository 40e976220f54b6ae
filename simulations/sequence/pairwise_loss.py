"""R7: the pairwise loss and the group-relative update, exact.

A step on the squared differences of regularised rewards is compared with the update of the group mean, own sample included, for
any samples. In the control the mean leaves the own sample out: it is off by a factor of 1/(K-1).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.arrays import Array, Integers
from grpo_theory.evidence import Comparison, Statement
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import Cell, Settings
from simulations.gradient.groups import estimate
from simulations.sequence.divergences import Numbers, gradient
from simulations.sequence.parts import of_length
from simulations.statements import stated

AT_THE_SAMPLER, AWAY = stated("R7", "R7/away")

PROBLEMS = ("tabular", "linear", "graded", "sequence-shared")
GROUPS, GROUP_SIZE, STRENGTH, DRIFT = 50, 6, 0.3, 0.5
KERNELS = ("dr_grpo", "rloo")
"""The group mean with the own sample in it; and broken, without."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem; exact, so quick is no different."""
    settings = {"groups": GROUPS, "group_size": GROUP_SIZE, "strength": STRENGTH, "drift": DRIFT}
    return [Cell({"problem": name} | settings) for name in PROBLEMS]


def compare(settings: Settings, rng: np.random.Generator) -> Iterator[Comparison]:
    """Yield the largest discrepancies, in units of a score times the rewards' spread, for groups that no policy would draw.

    Responses are drawn evenly from all there are, and rewards from a normal law, whatever the responses are.
    """
    problem, tau, size = gt.gallery.problem(settings["problem"]), settings["strength"], settings["group_size"]
    step = rng.normal(size=problem.policy.dimension)
    then = problem.at(problem.theta)
    scale = np.sqrt(then.moments.score_power)
    policies = {AT_THE_SAMPLER: then, AWAY: problem.at(problem.theta + of_length(settings["drift"], step))}
    gaps: dict[Statement, list[Array]] = {statement: [] for statement in policies}
    for _ in range(settings["groups"]):
        prompt = int(rng.integers(problem.bandit.n_prompts))
        responses = rng.integers(problem.bandit.n_responses, size=(size,))
        rewards = rng.normal(size=(size,))
        for statement, here in policies.items():
            drift = problem.policy.paths.along(here.token_log_probabilities - then.token_log_probabilities)
            regularised = rewards - tau * drift[prompt, responses]
            slope = _slope(problem, here, then, prompt, responses, rewards, tau)
            covectors = (estimate(kernel, here.covectors[prompt, responses], regularised) for kernel in KERNELS)
            updates = np.stack([_parameters(problem, prompt, covector) for covector in covectors])
            gap = np.linalg.norm(-slope / (2.0 * tau) - updates, axis=1) / (regularised.std() * scale[prompt])
            gaps[statement].append(gap)
    for statement, of_groups in gaps.items():
        own, broken = (largest(of_kernel) for of_kernel in np.transpose(of_groups))
        yield statement.compare(settings["problem"], own, 0.0, broken=broken)


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
    return problem.policy.tangent(problem.theta).adjoint(covectors)
