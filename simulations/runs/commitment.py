"""Prompts whose right answer is rare: success in many attempts after a run, compared with the start.

The measure is success in 256 attempts (pass@256) of the prompts below 0.1 at the start, with and without interference between
prompts. The study also asks whether prompts below 1/G are lost. In the controls there is one attempt in place of 256, or rarer
prompts in place of those below 1/G. Each arm trains at the step of a grid that is best for success on average over draws of the
world, and limits count draws.
"""

import numpy as np

from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, run
from simulations.best_rate import lead
from simulations.runs.arms import success_rates
from simulations.runs.sized import RUNS, over_draws
from simulations.seeds import seed_of
from simulations.statements import stated

SMALL, LARGE = SIZES = (8, 32)
BUDGET = 8192
ATTEMPTS = 256
LOW = 0.1
"""As in the paper's statement."""
FALLEN = 0.1
"""A prompt whose success has fallen to a tenth takes ten times as many attempts: none that a trainer would make."""
FEW = 0.1
DRAWS, QUICK_DRAWS = 48, 8
MANY, ONE, BETWEEN, BELOW = "gain in many attempts", "gain in one attempt", "fallen, 1/32 to 1/8", "fallen, below 1/32"


def cases(quick):
    """The world with interference, by two estimators, and its twin without."""
    places = (("small", "grpo"), ("small", "rloo"), ("apart", "grpo"))
    return [{"world": world, "estimator": name, "draws": QUICK_DRAWS if quick else DRAWS} for world, name in places]


def deal(world, estimator, draws, **_):
    """Return the settings of a case, a chunk for each size."""
    return {"world": world, "estimator": estimator, "draws": draws}, len(SIZES)


@run(dealt=deal, shared=True)
def trained(world, estimator, draws, rng, chunk):
    """Return what `measured` does of runs of a group size, by step and draw."""
    found = over_draws(world, estimator, SIZES[chunk], [BUDGET], (draws, RUNS), seed_of(rng), look=measured)
    return {"measures": found[None, :, :, 0]}


def measured(problem, theta):
    """Return the mean success of policies (R, d), what they gain in many attempts and in one, and who fell, shape (R, 5)."""
    start, end = (success_rates(problem, one) for one in (problem.theta, theta))
    rare, between, below = start < LOW, (start >= 1.0 / LARGE) & (start < 1.0 / SMALL), start < 1.0 / LARGE
    gained = [((1.0 - start[rare]) ** n - (1.0 - end[:, rare]) ** n).mean(axis=-1) for n in (ATTEMPTS, 1)]
    fallen = [(end[:, where] < FALLEN * start[where]).mean(axis=-1) for where in (between, below)]
    return np.stack([end.mean(axis=-1), *gained, *fallen], axis=-1)


def at_best(found):
    """Return each measure, by group size and name, at the step at which success is best."""
    leads = {}
    for size, result in zip(SIZES, found["measures"], strict=True):
        success, *measures = np.moveaxis(result, -1, 0)
        for name, values in zip((MANY, ONE, BETWEEN, BELOW), measures, strict=True):
            leads[size, name] = lead([success], judged=[values])
    return leads, {f"{name}, G = {size}": row["estimate"] for (size, name), row in leads.items()}


@check(
    stated("P6/rare prompts"),
    of=trained,
    cases=lambda quick: [one | {"group_size": size} for one in cases(quick) for size in SIZES],
    broken={"measure": ONE},
    setting="{world} ({estimator}, G = {group_size})",
)
def many_attempts(found, group_size, measure=MANY):
    """What prompts below 0.1 gain in many attempts; in the broken case in one."""
    leads, facts = at_best(found)
    return evidence(leads[group_size, measure], 0.0), facts


@check(
    stated("P6/boundary"),
    of=trained,
    cases=lambda quick: cases(quick)[:2],
    broken={"measure": BELOW},
    setting="{world} ({estimator})",
)
def boundary(found, measure=BETWEEN):
    """The share of prompts that groups of 8 lose above 1/32; in the broken case below it."""
    leads, facts = at_best(found)
    return evidence(leads[SMALL, measure], FEW), facts
