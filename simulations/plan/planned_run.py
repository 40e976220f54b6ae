"""What the planner's group size for a whole run loses, in worlds and networks that its simulated worlds leave out.

Logs are drawn at the start of a run, and the planner is asked. Its recommendation is judged by runs of draws of a kind of world
that is removed from its own, with other prompts. Other runs that judge it are of draws of a network whose features are learned.
Errors count draws, runs, the choice of size and learning rate, and logs. In the control all groups have 32 responses. In that of
a usual size, groups four times as large stand in for the planner's.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Statement
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.plan.run_advice import advise_run
from grpo_theory.plan.run_worlds import WORLDS
from grpo_theory.samples import RewardCounts
from simulations.plan.run_regret import (
    ANSWERS,
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

REGRET = stated("plan/run/regret")
AGAINST: Mapping[int, Statement] = {size: stated(f"plan/run/against {size}") for size in (4, 8, 16)}
SAME = stated("plan/run/no better than 4")
NEAR = "what the broken size loses there differs so much between draws that 48 of them do not tell it from the margin"
POWERLESS = {
    (AGAINST[4].id, "hard (trl_grpo), 128 responses a prompt"): NEAR,
    (AGAINST[4].id, "network of width 16 (trl_grpo), 128 responses a prompt"): NEAR,
}
RATES: Mapping[str, tuple[float, float]] = {"easy": (0.5, 0.1), "wide": (0.5, 1e-3), "hard": (0.1, 1e-4)}
"""Success rates at the start are spread evenly in their logarithm between these."""
NETWORKS: Mapping[str, int] = {"network of width 16": 16, "network of width 64": 64}
LOGS, QUICK_LOGS = 3, 2
"""Of each cell: few, because asking the planner takes as long as forty draws do, or ten of long runs."""
EACH = (16, 128)
"""The responses of a run, for each prompt that is trained on."""
SEED = 20261128
CASES: tuple[tuple[str, str, int], ...] = (
    *((rates, "trl_grpo", EACH[0]) for rates in RATES),
    ("wide", "trl_grpo", EACH[1]),
    ("hard", "trl_grpo", EACH[1]),
    ("wide", "rloo", EACH[0]),
    ("network of width 64", "trl_grpo", EACH[0]),
    ("network of width 16", "trl_grpo", EACH[1]),
)


def cells(quick: bool) -> list[Cell]:
    """One for each law of success rates or network, estimator and length of a run; quick has one of each kind, and short runs.

    The first chunk trains, each other one asks the planner with a log of its own.
    """
    listed = [("easy", "trl_grpo", 8), ("network of width 16", "trl_grpo", 8)] if quick else CASES
    logs, draws = (QUICK_LOGS, QUICK_DRAWS) if quick else (LOGS, DRAWS)
    return [
        Cell({"start": start, "estimator": estimator, "each": each, "logs": logs, "draws": draws}, 1 + logs, shared=True)
        for start, estimator, each in listed
    ]


def network(width: int, draw: int) -> gt.Problem:
    """Return a draw of a network at its start; one answer to each prompt is right, whichever the network thinks of it."""
    rng = np.random.default_rng([SEED, width, draw])
    policy = gt.TwoLayerSoftmax(rng.normal(size=(PROMPTS, INPUTS)), width, ANSWERS, scale=width**-0.5)
    right = rng.integers(0, ANSWERS, PROMPTS)[:, None] == np.arange(ANSWERS)
    theta = policy.start(rng)
    theta[width * INPUTS :] = SPREAD * rng.normal(size=ANSWERS * width)
    return gt.Problem(gt.Bandit(right.astype(float)), policy, theta=theta)


def problems(start: str, draw: int) -> dict[str, gt.Problem]:
    """Return a draw of what runs are judged on, by name: a world of each kind at some success rates, or a network."""
    if start in NETWORKS:
        return {start: network(NETWORKS[start], draw)}
    easiest, rarest = RATES[start]
    rates = np.geomspace(easiest, rarest, PROMPTS)
    return {world.title: world.problem(rates, draw) for world in WORLDS}


def drawn_log(rates: np.ndarray, rng: np.random.Generator) -> RewardCounts:
    """Return a log of as many prompts as a log has, each at a success rate drawn from these, shape (M,)."""
    prompts, responses = LOGGED
    wins = rng.binomial(responses, rng.choice(rates, prompts))
    rewards = (np.arange(responses) < wins[:, None]).astype(float)
    return RewardCounts.from_rewards(np.repeat(np.arange(prompts), responses), rewards.ravel())


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, Any]:
    """Return the success that each size reaches in draws of each kind; or what the planner says of a log, without that kind."""
    seed = seed_of(rng)
    if chunk > 0:
        return told(settings, problems(settings["start"], chunk), np.random.default_rng(child_seed(seed, 0, chunk)))
    return judge(settings, problems, NETWORK_POWERS if settings["start"] in NETWORKS else POWERS, seed)


def told(settings: Settings, judged: Mapping[str, gt.Problem], rng: np.random.Generator) -> dict[str, int]:
    """Return the size that the planner recommends from a log, for each of the problems."""
    first = next(iter(judged.values()))
    rates = (first.policy.probabilities(first.theta) * first.bandit.mean_reward).sum(axis=-1)
    total = settings["each"] * PROMPTS
    advice = advise_run(drawn_log(rates, rng), total, training_prompts=PROMPTS, estimator=settings["estimator"])
    return {name: without(advice, name).group_size for name in judged}


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Return the success of each size in each world, what is recommended there, and what choices lose on average over worlds."""
    return rows_of(settings, results)


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the regret, whether it is less than that of one size for all, and whether anything is gained on groups of 4."""
    return claims_of(table, REGRET, AGAINST, SAME)
