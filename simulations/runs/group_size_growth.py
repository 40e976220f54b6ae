"""Where the growth of the best group size with the budget comes from: division's weights, its noise, interference, rare answers.

GRPO is taken apart into the weights that division gives to prompts and the noise that it adds. Rare answers, interference between
prompts and the step's own best length are switched off one at a time. Every arm trains on the same draws of a world, at every
step of a grid. What is judged is the lead at the best steps of the grid, one for all draws, and limits count draws.

The world and the budgets were chosen because the best size grew in them, on a draw that is judged no more. So the study says why
it grows there, and not how often it does. A point of success (0.01) is noticeable, and half a point where the gain was about two.

Choices were made after data were seen. Parts of division are judged at the largest budget alone. What breaks the closed form was
chosen. The numbers of draws were set after a first run, for what it left undecided. Two controls there had lost their power,
because GRPO gained nothing: groups of 4 that stop at a sixteenth of the responses take its place. Efficiencies are compared by
the logarithm of their ratio, because their differences are too skewed.
"""

from dataclasses import replace

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, rows, run
from grpo_theory.simulate.training import finite_objectives
from grpo_theory.theory.finite_group import mixed_share
from simulations.best_rate import lead
from simulations.runs.sized import LENT, RESPONSES, RUNS, STEPS, WORLDS, arm_estimator, over_draws
from simulations.seeds import seed_of
from simulations.statements import stated

SMALL, LARGE = SIZES = (4, LENT)
BUDGETS = (512, 2048, 8192)
SOON, *_, LAST = BUDGETS
DRAWN = {
    "small": {"grpo": (128, 128), "weights": (24, 48), "rloo": (64, 64), "noise": (24, 48), "oracle": (24, 24)}
    | {"dropped": (24, 24), "lent": (128, 0)},
    "visible": {"grpo": (64, 64)},
    "apart": {"grpo": (0, 160)},
    "policies": {"rloo": (48, 0)},
}
"""By world and arm how many draws groups of 4 and of 64 have: most where a difference of few points is judged."""
QUICK_DRAWS = 6
RUNS_APART = 32
"""Without interference success does not depend on the draw, so that all runs are alike."""
POINT, HALF_POINT = 0.01, 0.005
"""A point of success is what a few hundred questions can just show."""
SURE = 1e5
"""A step after which a tabular prompt is solved, to rounding, once a group of it had a signal."""
SUCCESS, GAIN = "success", "gain of 64 over 4"


def in_world(*worlds, budgets=()):
    """Return cases in worlds, a quick run's with few draws."""
    cases = [{"world": world} | one for world in worlds for one in [{"budget": budget} for budget in budgets] or [{}]]
    return lambda quick: [one | {"quick": quick} for one in cases]


def arms_of(world):
    """List the arms of a world, their group sizes and draws."""
    return [(arm, size, n) for arm, draws in DRAWN[world].items() for size, n in zip(SIZES, draws, strict=True) if n]


def deal(world, quick, **_):
    """Return the arms of a world, a chunk each."""
    arms = [[arm, size, QUICK_DRAWS if quick else draws] for arm, size, draws in arms_of(world)]
    return {"world": world, "arms": arms}, len(arms)


@run(dealt=deal, shared=True)
def trained(world, arms, rng, chunk):
    """Return the success of an arm at a group size, by step, draw and budget; or what a step's efficiency is."""
    (arm, size, draws), seed = arms[chunk], seed_of(rng)
    if world == "policies":
        return [{"ends": efficiencies(draws, seed)}]
    steps, runs = ([SURE], RUNS_APART) if world == "apart" else (STEPS, RUNS)
    return [{"ends": over_draws(world, arm_estimator(arm, size), size, BUDGETS, (draws, runs), seed, steps)}]


def efficiencies(draws, seed):
    """Return a step's efficiency (rloo) at the start and at policies that runs of GRPO in groups of 4 reach at their best step.

    Its shape is (3, draws, 1 + budgets). The first is of groups of 4, and the second of groups of 64 for as many responses. The
    last (broken) is of groups of 64 for as many prompts, as if groups cost nothing.
    """

    def reached(problem, theta):
        return np.concatenate([finite_objectives(problem, theta)[:, None], theta], axis=-1)

    runs = over_draws("small", "grpo", SMALL, BUDGETS, (draws, 1), seed, look=reached)
    best = runs[..., 0].mean(axis=1).argmax(axis=0)
    policies = runs[best, :, np.arange(len(BUDGETS)), 1:]
    sizes, found = ((SMALL, RESPONSES), (LARGE, RESPONSES), (LARGE, RESPONSES * LARGE // SMALL)), np.empty((3, draws, 4))
    for draw in range(draws):
        problem = WORLDS["small"].problem(draw)
        for place, theta in enumerate([problem.theta, *policies[:, draw]]):
            for k, (size, responses) in enumerate(sizes):
                found[k, draw, place] = gt.efficiency(problem, theta, "rloo", batch_size=responses // size, group_size=size)
    return found


def coverage(success, group_size, budget):
    """Return the mean success where each prompt is solved by its first group with signal (docs/derivations.md, section 38)."""
    signal = mixed_share(success, group_size) / success.size
    return float(1.0 - ((1.0 - success) * (1.0 - signal) ** (budget // group_size)).mean())


def by_arm(world, found):
    """Return success (steps, draws, budgets) by arm and group size."""
    return {arm[:2]: np.array(one["ends"]) for arm, one in zip(arms_of(world), found, strict=True)}


def less(ends, one, other, after=LAST, before=None):
    """Return the lead of an arm after a budget over another, before another budget or the same, at the draws that both have."""
    sides = [ends[arm][..., BUDGETS.index(budget)] for arm, budget in ((one, after), (other, before or after))]
    draws = min(side.shape[1] for side in sides)
    return lead([side[:, :draws] for side in sides], (1.0, -1.0))


@check(
    *stated("growth/late", "growth/weights alone", "growth/noise alone", "growth/undivided", "growth/lent weights"),
    of=trained,
    cases=in_world("small"),
    broken={"right": False},
    setting="{world}",
)
def causes(found, right=True):
    """Broken: the smallest budget, undivided in place of a part of division, and groups of 4 that stop at a sixteenth."""
    ends = by_arm("small", found)
    grpo, weights, noise, rloo = ((arm, LARGE) for arm in ("grpo", "weights", "noise", "rloo"))
    gains = {
        f"gain of 64 over 4 at {budget} ({arm})": less(ends, (arm, LARGE), (arm, SMALL), budget)["estimate"]
        for arm, size in ends
        for budget in BUDGETS
        if size == LARGE
    }
    early, undivided = None if right else SOON, less(ends, rloo, grpo)
    parts = {"weights": less(ends, weights, grpo), "noise": less(ends, noise, rloo)}
    late = evidence(less(ends, grpo, ("grpo", SMALL), LAST if right else SOON), 0.0)
    apart = {name: evidence(part if right else undivided, POINT) for name, part in parts.items()}
    return {
        "growth/late": (replace(late, estimate=-late.estimate), gains),
        "growth/weights alone": replace(apart["weights"], estimate=abs(apart["weights"].estimate)),
        "growth/noise alone": replace(apart["noise"], estimate=abs(apart["noise"].estimate)),
        "growth/undivided": evidence(less(ends, rloo, ("rloo", SMALL), before=early), HALF_POINT),
        "growth/lent weights": evidence(less(ends, grpo, ("lent", SMALL), before=early), POINT),
    }


@check(stated("growth/rare answers"), of=trained, cases=in_world("visible"), broken={"before": SOON}, setting="{world}")
def rare_answers(found, before=LAST):
    """Broken: groups of 4 stop at a sixteenth of the responses."""
    return evidence(less(by_arm("visible", found), ("grpo", LARGE), ("grpo", SMALL), before=before), 0.0)


@check(
    stated("growth/no interference"),
    of=trained,
    cases=in_world("apart", budgets=BUDGETS),
    broken={"times": 1.5},
    setting=f"{{world}}, G = {LARGE}, C = {{budget}}",
)
def no_interference(found, budget, times=1.0):
    """Broken: half as many groups again."""
    success = lead([by_arm("apart", found)["grpo", LARGE][..., BUDGETS.index(budget)]])
    apart = abs(success["estimate"] - coverage(start_of("apart"), LARGE, times * budget))
    return evidence(success | {"estimate": apart}, POINT)


@check(
    stated("growth/efficiency"),
    of=trained,
    cases=in_world("policies", budgets=(0, *BUDGETS)),
    broken={"of": 2},
    setting="small, after {budget} responses",
)
def efficiency(found, budget, of=1):
    """The logarithm of the ratio of efficiencies, 64 over 4; broken: for as many prompts, as if groups cost nothing."""
    at = by_arm("policies", found)["rloo", SMALL][..., (0, *BUDGETS).index(budget)]
    return evidence(lead([np.log(at[of] / at[0])[None]]), 0.0)


def start_of(world):
    """Return the success rates at the start."""
    problem = WORLDS[world].problem()
    return gt.moments(problem, problem.theta).value


@rows(of=trained, cases=in_world("small", "visible", "apart"))
def courses(found, world):
    """Success by arm, group size and budget, and the gains of groups of 64, for the figure."""
    ends = by_arm(world, found)
    for arm, size in ends:
        for c, budget in enumerate(BUDGETS):
            about = {"arm": arm, "group_size": size, "budget": budget}
            yield about | {"quantity": SUCCESS} | lead([ends[arm, size][..., c]])
            if world == "apart":
                gain = coverage(start_of(world), LARGE, budget) - coverage(start_of(world), SMALL, budget)
                yield about | {"quantity": GAIN, "estimate": gain, "low": gain, "high": gain}
            elif size == LARGE:
                yield about | {"quantity": GAIN} | less(ends, (arm, LARGE), (arm, SMALL), budget)
