"""T8 where responses serve several passes: what dropping ratio and clip costs.

Both arms take their own best step of those tried, or the arm without ratio takes that of the arm with the clip. Problems are
random, and limits count them. In the control an arm descends.
"""

from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, run
from simulations.best_rate import LEAD_FACTS, lead
from simulations.seeds import seed_of
from simulations.sequence.off_policy import Pairs
from simulations.sequence.parts import composed
from simulations.statements import stated
from simulations.training.worlds import WORLDS, drawn

BATCH_SIZE, GROUP_SIZE, ROLLOUTS = 16, 8, 16
PASSES = {4: 4, 16: 1}
"""Passes over a rollout's responses, and minibatches of each: sixteen updates a rollout."""
WORLD, OPTIMISER = WORLDS["four"], gt.Adam()
CLIP, NONE = composed("rloo", "token", "by sign"), composed("rloo", "none")
STEP_SIZES = tuple(2.0**power for power in range(-6, 2))
"""From steps that hardly learn to steps that are too large for both."""
DESCENDS = 0.125
"""The step of the control, for which there is no best one."""
OWN_STEP, CLIPS_STEP = (f"T8/dropped, several passes{ending}" for ending in ("", " at the step of the clip"))
WHERE = f"problems of {WORLD.title}, {ROLLOUTS} rollouts, Adam, {{passes}} passes of {{minibatches}}"
PROBLEMS, RUNS = 64, 3
"""Problems are the sample: they differ by more than runs on one of them do."""
POINT = 0.01
"""One point of success at the end is less than two runs with other seeds differ by."""


def cases(quick):
    """Numbers of passes; quick has the first, on a quarter of the problems."""
    sizes = {"problems": PROBLEMS // (4 if quick else 1), "step_sizes": list(STEP_SIZES)}
    return [{"passes": passes, "minibatches": PASSES[passes]} | sizes for passes in list(PASSES)[: 1 if quick else None]]


def rollout_of(problem, reached, minibatches, rng):
    """Draw a rollout for each run, from the probabilities of its responses (S, R, M, K); advantages leave one out.

    Return the advantages summed by minibatch, prompt and response, shape (R, minibatches, M, K). The first are of responses
    with reward 1, the others of those with reward 0. Runs r of all S step sizes are drawn by the same uniforms.
    """
    steps, runs, n_prompts, n_responses = reached.shape
    prompts = rng.choice(n_prompts, size=(runs, BATCH_SIZE), p=problem.bandit.prompt_weights)
    uniforms = rng.random((runs, BATCH_SIZE, GROUP_SIZE))
    solved = rng.random(uniforms.shape)
    below = reached.cumsum(axis=-1)[:, np.arange(runs)[:, None], prompts]
    responses = (uniforms[..., None] * below[:, :, :, None, -1:] > below[:, :, :, None]).sum(axis=-1)
    rewards = solved < problem.bandit.mean_reward[prompts[..., None], responses]
    advantages = (GROUP_SIZE * rewards - rewards.sum(axis=-1, keepdims=True)) / (GROUP_SIZE - 1.0)
    shape = (steps * runs, minibatches, n_prompts, n_responses)
    minibatch = np.arange(BATCH_SIZE)[:, None] % minibatches
    run = np.arange(steps * runs).reshape(steps, runs, 1, 1)
    indices = np.ravel_multi_index(np.broadcast_arrays(run, minibatch, prompts[..., None], responses), shape)
    both = (np.bincount(indices.ravel(), (advantages * kept).ravel(), int(np.prod(shape))) for kept in (rewards, ~rewards))
    return tuple(totals.reshape(shape) for totals in both)


def success_of(settings, estimator, problem, step_sizes, runs, seed, sign=1.0):
    """Train an arm with Adam at each of S step sizes, and return the exact objective at the end of each run, (S, R).

    With the sign -1 it descends, which is broken.
    """
    rng, minibatches = np.random.default_rng(seed), settings["minibatches"]
    theta = np.tile(problem.theta[:, None], step_sizes.size * runs)
    moments, count, share = np.zeros((2, *theta.shape)), 0, sign * minibatches / (BATCH_SIZE * GROUP_SIZE)
    # The optimiser takes one step size for all: it makes a step of size 1, which each run takes times its own.
    scales = np.repeat(step_sizes, runs)
    for _ in range(ROLLOUTS):
        old = theta.T.copy()
        start = Pairs(problem, old, old)
        reached = start.reached.reshape(step_sizes.size, runs, *start.reached.shape[1:])
        right, wrong = rollout_of(problem, reached, minibatches, rng)
        for batch in list(range(minibatches)) * settings["passes"]:
            pairs, count = start.moved(theta.T.copy()), count + 1
            update = share * pairs.updates(estimator, right[:, batch], wrong[:, batch])
            move = np.zeros_like(theta)
            OPTIMISER.move(move, np.ascontiguousarray(update.T), moments, OPTIMISER.settings, 1.0, count)
            theta += scales * move
    return np.asarray(gt.objective(problem, theta.T.copy())).reshape(step_sizes.size, runs)


@run()
def trained(step_sizes, problems, rng, **settings):
    """Train each arm at each step on random problems; return the mean success of a problem's runs, (steps, problems)."""
    grid = np.array(step_sizes)
    arms = {"clip": (CLIP, 1.0, grid), "none": (NONE, 1.0, grid), "broken": (NONE, -1.0, np.array([DESCENDS]))}
    reached: dict[str, list[Any]] = {name: [] for name in arms}
    for problem, own in drawn(WORLD.make, seed_of(rng), problems):
        for name, (estimator, sign, steps) in arms.items():
            reached[name].append(success_of(settings, estimator, problem, steps, RUNS, own, sign).mean(axis=1))
    return {name: np.stack(success, axis=-1) for name, success in reached.items()}


@check(*stated(OWN_STEP, CLIPS_STEP), of=trained, cases=cases, broken={"arm": "broken"}, setting=WHERE)
def ahead(found, step_sizes, arm="none"):
    """By how much the clip is ahead at the end, against a point, each at its own best step or both at the clip's.

    Broken: ahead of an arm that descends.
    """
    clip, none, sides = found["clip"], found["none"], {}
    best, own = (step_sizes[reached.mean(axis=1).argmax()] for reached in (clip, none))
    each = lead([clip, found[arm]], (1.0, -1.0))
    both = lead([clip], judged=[clip - none]) if arm == "none" else each
    at_own, at_clips = (OWN_STEP, each, "own", lead([none]), own), (CLIPS_STEP, both, "clip's", lead([clip], judged=[none]), best)
    for name, row, what, success, step in (at_own, at_clips):
        facts = {"success, clip": lead([clip])["estimate"], "step, clip": best}
        facts |= {f"success, {what}": success["estimate"], f"step, {what}": step}
        sides[name] = evidence(row, POINT), facts | {fact: float(row[column]) for column, fact in LEAD_FACTS.items()}
    return sides
