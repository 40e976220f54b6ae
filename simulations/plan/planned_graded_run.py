"""What the planner's group size for a run loses where rewards are graded, in worlds and a network that its own leave out.

As `planned_run`, with logs of graded rewards. The worlds that judge have three times as many answers as the planner's, and
rewards that its ladder of six has to put together. Their prompts' laws of rewards are not of the family that it fits. In the
control all groups have 32 responses. In that of a usual size, groups four times as large stand in for the planner's.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Statement
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.plan.run_advice import advise_run
from grpo_theory.plan.run_worlds import WORLDS
from grpo_theory.samples import RewardCounts
from simulations.plan.run_regret import ANSWERS as FEW
from simulations.plan.run_regret import (
    DRAWS,
    INPUTS,
    LOGGED,
    NETWORK_POWERS,
    POWERS,
    PROMPTS,
    QUICK_DRAWS,
    SPREAD,
    claims_of,
    judge,
    rows_of,
    without,
)
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

REGRET = stated("plan/graded run/regret")
AGAINST: Mapping[int, Statement] = {size: stated(f"plan/graded run/against {size}") for size in (8, 16)}
SAME = stated("plan/graded run/no better than 4")
KINDS = (0, 2, 3)
"""The places of the kinds of worlds that judge: prompts that do not touch each other, that compete, and that teach each other."""
ANSWERS = 24
"""Of each prompt: three times the planner's."""
RATES: Mapping[str, tuple[float, float]] = {"thirds": (0.5, 1e-3), "many": (0.5, 0.05)}
"""Mean rewards at the start are spread evenly in their logarithm between these."""
PARTS = 3
"""Of "thirds": a response gets a third for each part that it solves, each at the same rate."""
VALUES, CONCENTRATION = 20, 10.0
"""Of "many": so many rewards, evenly spaced, at the quantiles of a beta law with so large a sum of its parameters."""
NETWORK, WIDTH = "network", 16
SEED = 20261129
LOGS, QUICK_LOGS = 3, 2
"""Of each cell, as few as in `planned_run`."""
CASES: tuple[tuple[str, str, int], ...] = (
    ("thirds", "trl_grpo", 64),
    ("many", "rloo", 40),
    (NETWORK, "trl_grpo", 40),
)


def cells(quick: bool) -> list[Cell]:
    """One for each kind of rewards; the first chunk trains, each other one asks the planner with a log of its own."""
    listed = [("thirds", "trl_grpo", 8), (NETWORK, "trl_grpo", 8)] if quick else CASES
    logs, draws = (QUICK_LOGS, QUICK_DRAWS) if quick else (LOGS, DRAWS)
    return [
        Cell({"start": start, "estimator": estimator, "each": each, "logs": logs, "draws": draws}, 1 + logs, shared=True)
        for start, estimator, each in listed
    ]


def start_laws(start: str) -> tuple[Array, Array]:
    """Return the rewards (L,) and the law of each prompt's at the start, shape (M, L), the largest mean first."""
    from scipy.stats import beta, binom  # slow to import, and seldom wanted

    easiest, rarest = RATES[start]
    means = np.geomspace(easiest, rarest, PROMPTS)[:, None]
    if start == "thirds":
        successes = np.arange(PARTS + 1)
        return successes / PARTS, np.asarray(binom.pmf(successes, PARTS, means))
    edges = np.linspace(0.0, 1.0, VALUES + 1)
    shares = np.diff(beta.cdf(edges, CONCENTRATION * means, CONCENTRATION * (1.0 - means)), axis=1)
    shares = np.maximum(shares, 1e-9)
    return np.linspace(0.0, 1.0, VALUES), shares / shares.sum(axis=1, keepdims=True)


def network(draw: int) -> gt.Problem:
    """Return a draw of a network at its start; each prompt's answers have rewards from 0 to 1, in its own order."""
    rng = np.random.default_rng([SEED, WIDTH, draw])
    policy = gt.TwoLayerSoftmax(rng.normal(size=(PROMPTS, INPUTS)), WIDTH, FEW, scale=WIDTH**-0.5)
    levels = rng.permuted(np.tile(np.arange(FEW), (PROMPTS, 1)), axis=1)
    theta = policy.start(rng)
    theta[WIDTH * INPUTS :] = SPREAD * rng.normal(size=FEW * WIDTH)
    bandit = gt.Bandit.from_law(np.linspace(0.0, 1.0, FEW), np.eye(FEW)[levels])
    return gt.Problem(bandit, policy, theta=theta)


def problems(start: str, draw: int) -> dict[str, gt.Problem]:
    """Return a draw of what runs are judged on, by name: a world of some kinds, or the network."""
    if start == NETWORK:
        return {start: network(draw)}
    values, shares = start_laws(start)
    return {WORLDS[kind].title: WORLDS[kind]._replace(answers=ANSWERS).graded(values, shares, draw) for kind in KINDS}


def drawn_log(problem: gt.Problem, rng: np.random.Generator) -> RewardCounts:
    """Return a log of as many prompts as a log has, each with the law of one of the problem's at its start."""
    prompts, responses = LOGGED
    bandit = problem.bandit
    laws = np.einsum("mk,mkl->ml", problem.policy.probabilities(problem.theta), bandit.probabilities)
    counts = rng.multinomial(responses, (laws / laws.sum(axis=1, keepdims=True))[rng.integers(len(laws), size=prompts)])
    rewards = np.repeat(np.tile(bandit.values, prompts), counts.ravel())
    return RewardCounts.from_rewards(np.repeat(np.arange(prompts), responses), rewards)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Return the reward that each size reaches in draws of each kind; or what the planner says of a log, without that kind."""
    seed = seed_of(rng)
    if chunk > 0:
        return told(settings, problems(settings["start"], chunk), np.random.default_rng(child_seed(seed, 0, chunk)))
    return judge(settings, problems, NETWORK_POWERS if settings["start"] == NETWORK else POWERS, seed)


def told(settings: Settings, judged: Mapping[str, gt.Problem], rng: np.random.Generator) -> dict[str, int]:
    """Return the size that the planner recommends from a log, for each of the problems."""
    log, total = drawn_log(next(iter(judged.values())), rng), settings["each"] * PROMPTS
    advice = advise_run(log, total, training_prompts=PROMPTS, estimator=settings["estimator"])
    return {name: without(advice, name).group_size for name in judged}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return the reward of each size in each world, what is recommended there, and what choices lose on average over worlds."""
    return rows_of(settings, results)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the regret, whether it is less than that of one size for all, and whether anything is gained on groups of 4."""
    return claims_of(table, REGRET, AGAINST, SAME)
