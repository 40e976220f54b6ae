"""N12: the phases of training with division by the standard deviation, on SmolLM2's head.

The exact runs are steepest ascent along the mean of grad J_i and of grad J_i / sqrt(V_i). Their first updates have the same
length, so they differ only in where they turn. In the sampled runs groups have 8 responses, and the plain arm has its best
constant step. The others have the step that gives their first mean update the same length. (A best step for each, from a grid of
factor 2, is no fairer. Times to a level are so flat in the step that the choice, and with it who is ahead, turns with the seed.)

The control of phases I and II is the arm that multiplies by the standard deviation. That of III has prompts that share no
features, so that no training takes their orthogonality away. That of the gain without orthogonality has coordinates in which
prompts are orthogonal.
"""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np

import grpo_theory as gt
from grpo_theory.estimation.registry import make_estimator
from grpo_theory.evidence.reading import evidence, exact, summary
from grpo_theory.exact import StabilityWarning
from grpo_theory.harness import check, rows, run
from simulations.normalisation.heads import OWN, STRIDE, ascent, cosines, gram, head_problem, label, near_orthogonal, state
from simulations.normalisation.phases import NOTICEABLE, ORTHOGONAL, advantage, first_two, is_orthogonal, shown
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

PHASES, FIRST, SECOND, THIRD, THIRD_FROM_THE_START = stated("N12", "N12/I", "N12/II", "N12/III", "N12/III, from the start")
POWERLESS = {("N12/II", "lm-few-shot, ridge 0.01, sampled"): "the sampled runs do not tell a change of a point from none"}

PROBLEM = "lm-few-shot"
RIDGES, QUICK_RIDGES = (OWN, 100.0, 1.0, 0.01), (OWN, 0.01)
"""From the head's own coordinates, over features as orthogonal as the paper's (|cos| 0.085 at ridge 1), to nearly free ones."""
SAMPLED = 0.01
"""The ridge of the sampled runs, as in `quality_path`: at larger ones no arm gets to 0.8 in time."""
EXACT_UPDATES, QUICK_EXACT_UPDATES = (0, 10, 20, 40, 80, 160, 320, 640, 1280), (0, 10, 20, 40, 80, 160, 320)
EXACT_STRIDE, QUICK_EXACT_STRIDE = STRIDE, 4.0 * STRIDE
UPDATES, QUICK_UPDATES = (0, 5, 10, 20, 40, 80, 160, 320), (0, 5, 10, 20)
BATCH_SIZE, GROUP_SIZE = 32, 8
STEP_SIZE = 512.0
"""Of the plain arm: that of its least mean time to 0.8, of 64, 128, ..., 2048, in two pilots on other seeds."""
RUNS, QUICK_RUNS, CHUNK_RUNS = 128, 2, 16


def multiplied_by_deviation(batch, advantages):
    """A = (Z - the group's mean) times the group's standard deviation."""
    for b in range(batch.rewards.shape[0]):
        mean = batch.rewards[b].mean()
        deviation = batch.rewards[b].std()
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = (batch.rewards[b, g] - mean) * deviation


MULTIPLIED = make_estimator("multiplied_by_deviation", multiplied_by_deviation, exchangeable=True)
ARMS: dict[str, tuple[float, Any]] = {"plain": (0.0, "dr_grpo"), "divided": (-1.0, "grpo"), "multiplied": (1.0, MULTIPLIED)}
"""The power of the deviation that exact gradients have as a factor, and the estimator of sampled runs."""
MEASURES = ("success", "easy", "hard", "deviation", "orthogonality", "apart")
"""Mean success over all prompts, and over the halves that are easier and harder at the start; and what the phases are about."""


def cases(quick):
    """One case for each system of coordinates, exact, and one for the sampled runs."""
    exactly = {"how": "exact", "runs": 1, "stride": QUICK_EXACT_STRIDE if quick else EXACT_STRIDE}
    exactly |= {"updates": list(QUICK_EXACT_UPDATES if quick else EXACT_UPDATES)}
    sampled = {"how": "sampled", "ridge": SAMPLED, "runs": QUICK_RUNS if quick else RUNS, "step_size": STEP_SIZE}
    sampled |= {"updates": list(QUICK_UPDATES if quick else UPDATES), "batch_size": BATCH_SIZE, "group_size": GROUP_SIZE}
    return [*({"ridge": ridge, **exactly} for ridge in (QUICK_RIDGES if quick else RIDGES)), sampled]


def where(how, ridge, **_):
    """Return what a case is called."""
    return f"{PROBLEM}, {label(ridge)}, {how}"


def measured(logits, products, success, easy):
    """Return `MEASURES` of a policy: success, also of halves, mean deviation, and shares of near-orthogonal gradients."""
    now = state(logits, success)
    shares = (near_orthogonal(cosines(given, now.logit_gradients)) for given in (products, np.diag(np.diag(products))))
    return [now.value.mean(), now.value[easy].mean(), now.value[~easy].mean(), now.deviation.mean(), *shares]


@run(shared=True, runs=CHUNK_RUNS)
def trained(how, ridge, updates, runs, rng, chunk, **settings):
    """Return the measures of each arm's runs, (runs, checkpoints, measures), on draws that all arms share."""
    problem = head_problem(PROBLEM, ridge)
    value = problem.at(problem.theta).moments.value
    known = gram(problem), problem.bandit.mean_reward, value > np.median(value)
    seed = child_seed(seed_of(rng), chunk)
    found: dict[str, Any] = {}
    for arm, (power, estimator) in ARMS.items():
        if how == "exact":
            path = enumerate(ascent(problem, power, updates[-1], settings["stride"]))
            found[arm] = [[measured(now.logits, *known) for n, now in path if n in updates]]
        else:
            course = [problem.policy.logits(theta) for theta in sampled(problem, estimator, updates, runs, seed, **settings)]
            found[arm] = np.swapaxes([[measured(logits, *known) for logits in looked] for looked in course], 0, 1)
    return found


def sampled(problem, estimator, updates, runs, seed, step_size, **sizes):
    """Return parameters of all runs at the checkpoints, with first mean updates as long as the plain arm's."""
    # Best steps are long, and the filter for that stays, because filters are common to all threads.
    warnings.filterwarnings("ignore", category=StabilityWarning, module=__name__.replace(".", r"\."))
    plain, own = (np.linalg.norm(gt.gradient_mean(problem, problem.theta, one, **sizes)) for one in ("dr_grpo", estimator))
    sizes |= {"replications": runs, "workers": 1}
    course = [np.tile(problem.theta, (runs, 1))]
    for stage, (before, after) in enumerate(pairwise(updates)):
        more = sizes | {"steps": after - before, "rng": child_seed(seed, stage)}
        step = gt.Constant(float(step_size * plain / own))
        course.append(gt.simulate_training(problem, course[-1], estimator, step, **more).theta)
    return course


@check(FIRST, SECOND, THIRD, of=trained, cases=cases, broken={"arm": "multiplied", "measure": "apart"}, setting=where)
def printed_phases(found, updates, arm="divided", measure="orthogonality"):
    """The printed phases, where their premises hold."""
    end = found["plain"][:, -1, MEASURES.index(measure)]
    both = first_two(found, arm, MEASURES, updates)
    return {f"N12/{name}": sides for name, sides in both.items()} | {THIRD.id: evidence(summary(end), ORTHOGONAL)}


@check(THIRD_FROM_THE_START, of=trained, cases=cases, broken={"ridge": SAMPLED, "orthogonal": True}, setting=where)
def without_orthogonality(found, how, orthogonal=False):
    """What division gains, by exact gradients, where prompts are not near-orthogonal from the start."""
    share = found["plain"][0, 0, MEASURES.index("orthogonality")]
    if how == "exact" and is_orthogonal(share) == orthogonal:
        return exact(advantage(found, "divided")[0, -1], NOTICEABLE), {"share |cos| < 0.1": share}
    return None


@rows(of=trained, cases=cases)
def courses(found, ridge, updates):
    """Measures and advantages of each arm at each checkpoint, and increases of division's with their phases."""
    yield from ({"coordinates": label(ridge)} | row for row in shown(found, MEASURES, updates))
