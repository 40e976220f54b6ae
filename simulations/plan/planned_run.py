"""What the planner's group size for a whole run loses, in worlds and networks that its simulated worlds leave out.

Logs are drawn at the start of a run, and the planner is asked. Its recommendation is judged by runs of draws of a kind of world
that is removed from its own, with other prompts. Other runs that judge it are of draws of a network whose features are learned.
Errors count draws, runs, the choice of size and learning rate, and logs. In the control all groups have 32 responses. In that of
a usual size, groups four times as large stand in for the planner's.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.intervals.ragged import RewardCounts
from grpo_theory.plan.run_worlds import WORLDS
from simulations.plan import run_regret
from simulations.plan.run_regret import ANSWERS, LOGGED, PROMPTS
from simulations.statements import stated

REGRET = stated("plan/run/regret")
AGAINST = {size: stated(f"plan/run/against {size}") for size in (4, 8, 16)}
SAME = stated("plan/run/no better than 4")
NEAR = "what the broken size loses there differs so much between draws that 48 of them do not tell it from the margin"
POWERLESS = {
    (AGAINST[4].id, "network of width 16 (trl_grpo), 128 responses a prompt"): NEAR,
}
RATES = {"easy": (0.5, 0.1), "wide": (0.5, 1e-3), "hard": (0.1, 1e-4)}
"""Success rates at the start are spread evenly in their logarithm between these."""
NETWORKS = {"network of width 16": 16, "network of width 64": 64}
EACH = (16, 128)
"""The responses of a run, for each prompt that is trained on."""
SEED = 20261128
CASES = (
    *((rates, "trl_grpo", EACH[0]) for rates in RATES),
    ("wide", "trl_grpo", EACH[1]),
    ("hard", "trl_grpo", EACH[1]),
    ("wide", "rloo", EACH[0]),
    ("network of width 64", "trl_grpo", EACH[0]),
    ("network of width 16", "trl_grpo", EACH[1]),
)
QUICK_CASES = (("easy", "trl_grpo", 8), ("network of width 16", "trl_grpo", 8))


def one_right(rng):
    """Return rewards by which one answer to each prompt is right."""
    return gt.Bandit((rng.integers(0, ANSWERS, PROMPTS)[:, None] == np.arange(ANSWERS)).astype(float))


def problems(start, draw):
    """Return a draw of what runs are judged on, by name: a world of each kind at some success rates, or a network."""
    if start in NETWORKS:
        return {start: run_regret.network(NETWORKS[start], [SEED, NETWORKS[start], draw], one_right)}
    rates = np.geomspace(*RATES[start], PROMPTS)
    shares = np.stack([1.0 - rates, rates], axis=-1)
    return {world.title: world.graded(np.array([0.0, 1.0]), shares, draw) for world in WORLDS}


def drawn_log(problem, rng):
    """Return a log of as many prompts as a log has, each at the success rate of one of the problem's at its start."""
    prompts, responses = LOGGED
    rates = (problem.policy.probabilities(problem.theta) * problem.bandit.mean_reward).sum(axis=-1)
    wins = rng.binomial(responses, rng.choice(rates, prompts))
    rewards = (np.arange(responses) < wins[:, None]).astype(float)
    return RewardCounts.from_rewards(np.repeat(np.arange(prompts), responses), rewards.ravel())


cells, simulate, rows, claims = run_regret.study_of(problems, drawn_log, CASES, QUICK_CASES, NETWORKS, REGRET, AGAINST, SAME)
