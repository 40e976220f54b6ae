"""T14, T8: updates to a level of the objective if features are learned, each composition at its best step size.

Networks of two layers are drawn at random, and are the sample; an arm has one step for all of them. The level of a problem is two
thirds of the way from its start to the best response at each prompt. In the control three signs of TIC-GRPO's eight are wrong,
which leaves a quarter of its mean update.
"""

from dataclasses import replace

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.harness import check, run
from simulations.seeds import seed_of
from simulations.statements import stated
from simulations.training import contests
from simulations.training.worlds import Network, drawn, step_grid

RACES = ("against GRPO", "against GSPO", "ratio", "clip", "both", "against no ratio")
CONTESTS = {f"T14/{name}, learned features": contests.CONTESTS[f"T14/{name}"] for name in RACES}
CONTESTS["T8/time, learned features"] = contests.CONTESTS["T8/training"]


def wrong_for_three(batch, advantages):
    """A as in dr_grpo, with the wrong sign for the first three responses of each group: for the control."""
    for b in range(batch.rewards.shape[0]):
        advantages[b] = batch.rewards[b] - batch.rewards[b].mean()
        advantages[b, :3] *= -1.0


ARMS = {arm: contests.ARMS[arm] for arm in ("TIC", "GRPO", "GSPO", "neither", "ratio alone", "clip alone", "no ratio")} | {
    "broken": replace(contests.ARMS["TIC"], name="broken", advantage=make_estimator("wrong_for_three", wrong_for_three).advantage)
}
NETWORKS = {
    "2 tokens, width 8": Network(2, 8, "SGD", tuple(2.0**power for power in range(0, 8)), prompts=8, inputs=8, one_in=4),
    "4 tokens, width 8": Network(4, 8, "Adam", tuple(2.0**power for power in range(-7, 1)), prompts=8, inputs=8, one_in=4),
}
"""With grids around the best steps that pilots on other problems found for all arms; TIC-GRPO divides by the horizon."""
WAY = 2.0 / 3.0
"""The share of the way from the start to the best responses at which the level lies."""
SIZES = {"batch_size": 16, "group_size": 8, "rollouts": 32, "inner_steps": 8}
PROBLEMS, QUICK_PROBLEMS, RUNS = 64, 8, 4
"""Few runs on each problem, at eight steps: as many as are trained side by side."""


def cases(quick):
    """The kinds of networks; quick has one, with every second step."""
    number = QUICK_PROBLEMS if quick else PROBLEMS
    listed = [{"network": name, "optimiser": kind.optimiser, "problems": number} for name, kind in NETWORKS.items()]
    return listed[:1] if quick else listed


def asked(network, problems, **case):
    """Return the settings of the runs, a chunk for each arm."""
    steps = list(NETWORKS[network].steps[:: 1 if problems == PROBLEMS else 2])
    about = {"network": network, "problems": problems, "runs": RUNS, "arms": list(ARMS), "steps": steps}
    return case | SIZES | about, len(ARMS)


@run(dealt=asked, shared=True)
def trained(rng, chunk, **settings):
    """Train an arm at each step of the grid, on problems and draws that all arms share; return times (steps, problems)."""
    inner, arm = settings["inner_steps"], settings["arms"][chunk]
    checkpoints, times = inner * np.arange(settings["rollouts"] + 1), []
    for problem, seed in drawn(NETWORKS[settings["network"]].problem, seed_of(rng), settings["problems"]):
        objectives = step_grid(settings, problem, ARMS[arm]).objectives(settings["runs"], seed, checkpoints.tolist())
        times.append([contests.updates_to_level(along, checkpoints, level(problem)).mean() for along in objectives])
    return {"arms": [{"arm": arm, "steps": settings["steps"], "times": np.array(times).T}]}


def level(problem):
    """Return the objective two thirds of the way from the start to the best response at each prompt."""
    start = float(gt.objective(problem, problem.theta))
    best = float(problem.bandit.prompt_weights @ problem.bandit.mean_reward.max(axis=1))
    return start + WAY * (best - start)


@check(*stated(*CONTESTS), of=trained, cases=cases, broken={"instead": "broken"}, setting="{network}, {optimiser}")
def sooner(found, instead=""):
    """Differences of times, the worst of an arm's rivals; broken: the broken TIC-GRPO in the arm's place."""
    return contests.contested(CONTESTS, found["arms"], instead)
