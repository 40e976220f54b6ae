"""The best group size at a budget, predicted from the start of a run: the weight of the prompts met so far over the noise.

The law (docs/derivations.md, section 38) is judged on worlds other than those it was made on, over draws of each. Its choice of a
size is exact for each draw. The measure is the success that this choice loses against the best size and step of the same grid.
That size and step are the same for all draws. In the control the law knows of no noise.

One choice was made after trials on other worlds: a prompt counts as met where 8 successes are expected. There 1 and 2 lost more,
and 4 to 16 lost the same. On five worlds that are judged no more, 4 lost more than 8.
"""

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import evidence
from grpo_theory.harness import check, rows, run
from grpo_theory.theory.finite_group import finite_group_objective
from simulations.best_rate import lead
from simulations.runs.sized import RUNS, STEPS, WORLDS, over_draws
from simulations.seeds import seed_of
from simulations.statements import stated

USUAL = 4
"""The best single size of the ten worlds on which the law was made: what a law must beat to be of use."""
SIZES = (2, 4, 8, 16, 32, 64)
BUDGETS = (512, 2048, 8192)
WHERE = (
    ("rarer", "grpo"),
    ("roomy", "grpo"),
    ("more prompts", "grpo"),
    ("competing", "grpo"),
    ("misled", "grpo"),
    ("rarer", "rloo"),
)
MET = 8
"""A prompt counts as met when this many successes are expected of its share C/M of the responses."""
DRAWS, QUICK_DRAWS = 48, 6
GRID = (*STEPS[1:], 2.0 * STEPS[-1])
"""Groups of 2 were best at the largest step of the other grid, after a first run, and no size near the least."""
MARGIN = 0.02
"""Two points of success: what the growth of the best size was worth at most in the trials."""
LAW = "loss of the law"


def cases(quick):
    """Each world and estimator in which the law is judged."""
    return [{"world": world, "estimator": name, "draws": QUICK_DRAWS if quick else DRAWS} for world, name in WHERE]


@run(dealt=lambda **case: (case | {"sizes": list(SIZES)}, len(SIZES)), shared=True)
def trained(world, estimator, draws, sizes, rng, chunk):
    """Return success at a group size by step, draw and budget, and what the law knows."""
    size, problems = sizes[chunk], [WORLDS[world].problem(draw) for draw in range(draws)]
    return {
        "success": over_draws(world, estimator, size, BUDGETS, (draws, RUNS), seed_of(rng), GRID)[None],
        "weight": [[frontier_weights(problem, estimator, size) for problem in problems]],
        "noise": [[noise_at_start(problem, estimator, size) for problem in problems]],
    }


def noise_at_start(problem, estimator, group_size):
    """Return v_G: N times the trace of the covariance of an update's estimate from N responses, at the start; N drops out."""
    return group_size * gt.gradient_law(problem, problem.theta, estimator, batch_size=1, group_size=group_size).trace


def frontier_weights(problem, estimator, group_size, budgets=BUDGETS):
    """Return w_G at the rarest prompts that each budget has met, shape (C,)."""
    rates = gt.moments(problem, problem.theta).value
    met = np.clip(MET * rates.size / np.array(budgets), rates.min(), rates.max())
    # Rounded, so that weights which are equal are ties: there the broken law takes the largest group, as elsewhere.
    return finite_group_objective(estimator, group_size).slope(met).round(9)


def chosen(found, noise=True):
    """Return the places of the sizes that the law chooses, (draws, budgets); without noise, the largest one of most weight."""
    weight = found["weight"]
    if noise:
        return (weight / np.sqrt(found["noise"])[..., None]).argmax(axis=0)
    return len(weight) - 1 - weight[::-1].argmax(axis=0)


def at_each(success, places):
    """Return at each budget the success by step and draw of the sizes at places (draws, budgets)."""
    draws = np.arange(len(places))
    return [success[at, :, draws, c].T for c, at in enumerate(places.T)]


def less(one, other):
    """Return the lead of one choice over another on average over the budgets."""
    return lead([*one, *other], [sign / len(BUDGETS) for sign in (1.0, -1.0) for _ in BUDGETS])


def choices(found, noise=True):
    """Return success at each budget, by step and draw, of the best size, of the law's, and of each size at all budgets."""
    success = found["success"]
    best = [one.reshape(-1, one.shape[-1]) for one in np.moveaxis(success, -1, 0)]
    always = {f"loss of always {size}": np.moveaxis(own, -1, 0) for size, own in zip(SIZES, success, strict=False)}
    return best, {LAW: at_each(success, chosen(found, noise))} | always


@check(
    *stated("growth/law", "growth/law, against one size"),
    of=trained,
    cases=cases,
    broken={"noise": False},
    setting="{world} ({estimator})",
)
def law(found, estimator, noise=True):
    """What the law's choice loses against the best size, and against groups of 4; in the broken case it knows of no noise."""
    (best, by_rule), said, facts = choices(found, noise), np.log2(SIZES[: len(found["success"])])[chosen(found)], {}
    for c, budget in enumerate(BUDGETS):
        facts[f"best G at {budget}"] = SIZES[int(np.argmax([lead([own[..., c]])["estimate"] for own in found["success"]]))]
        facts[f"the law's at {budget}"] = np.exp2(said[:, c].mean())
    losses = {name: less(best, own) for name, own in by_rule.items()}
    facts |= {name.replace("always", "G ="): row["estimate"] for name, row in losses.items() if name != LAW}
    sides = {"growth/law": (evidence(losses[LAW], MARGIN), facts)}
    if estimator == "grpo":  # undivided, the law says one size itself
        sides["growth/law, against one size"] = evidence(less(by_rule[f"loss of always {USUAL}"], by_rule[LAW]), 0.0), facts
    return sides


@rows(of=trained, cases=cases)
def lost(found):
    """What the law and each size at all budgets lose, for the figure."""
    best, by_rule = choices(found)
    for name, own in by_rule.items():
        yield {"quantity": name} | less(best, own)
