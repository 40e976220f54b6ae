"""U9: SmolLM2, its last block or adapters in all blocks trained with Adam, at several group sizes and equal responses.

The shipped records of `gt.data.trained_model` are read: one model, forty questions, all updates of 128 responses. Seeds are the
units. Every arm is at its own best of the rates tried. Every group size is compared with groups of 4, and every use of ratios
with every other. Looks go from an eighth of a run on. Two comparisons were planned: groups of 4 against 64, and PPO's clip
against no ratio, both after 96 updates. The lowest two rates of runs that reuse rollouts were added after data had been seen.

So many leads are read that some limits at 95% miss the truth. A second pair of limits therefore holds for all leads of both sets
of records at once. It is Bonferroni's. Limits from resampled seeds would rely on how the leads depend on each other, which ten
seeds cannot tell of more than a hundred. Leads have no verdict. Exact efficiencies of one update along the way are judged
instead. The control has the largest group size.
"""

from itertools import combinations

import numpy as np
from scipy.special import stdtrit

from grpo_theory.data import trained_model
from grpo_theory.evidence.reading import summary
from grpo_theory.harness import check, rows
from simulations.best_rate import lead
from simulations.runs.frontier_statements import LOST
from simulations.runs.recorded_runs import RATIOS, arms_of
from simulations.runs.recorded_scores import PLACES, Scores, efficiency
from simulations.statements import stated

TRAINED = ("last block", "adapters")
"""What learns: the block over frozen states, or low-rank adapters on all matrices of all blocks (LoRA)."""
RESPONSES = 128
ESTIMATORS = ("dr_grpo", "grpo")
BOTH = "both"
AVERAGED = {BOTH: ESTIMATORS, **{name: (name,) for name in ESTIMATORS}}
"""The estimators over which a lead of group sizes is averaged, by its label."""
SMALL, RESCALED = 4, 2
"""The size that all others are compared with, and the size at which division only multiplies, to which Adam is blind."""
SEEN = 5
"""The seeds whose leads had been read when the others were made, as planned from the start: these repeat what those had shown."""
FIRST, USUAL = 12, 96
"""Updates of the first look, an eighth of a run, and of the usual runs."""
PLANNED = {(BOTH, f"groups of {SMALL}", "groups of 64"), (ESTIMATORS[0], RATIOS["by sign"], RATIOS["none"])}
"""The comparisons that were planned, after `USUAL` updates."""
LEVEL = 0.95


CASES = [{"trained": name, "data": trained_model(name).provenance["sha256"]} for name in TRAINED]
"""The sets of records; they are what they are, so quick is no different."""


@rows(cases=CASES)
def successes(trained):
    """Success and held-out success of each arm by number of updates, and success at each rate at the end."""
    data = trained_model(trained)
    for which, runs, updates in (("usual", data.runs, data.updates), ("longer", data.longer, data.longer_updates)):
        held_out = arms_of(runs, "held_out") if runs else {}
        for (estimator, arm), values in arms_of(runs).items() if runs else []:
            named = {"arm": f"groups of {arm}", "group_size": arm} if isinstance(arm, int) else {"arm": arm}
            at = {"runs": which, "estimator": estimator} | named
            for look, update in enumerate(updates):
                own, judged = values[..., look], held_out[estimator, arm][..., look]
                yield at | {"quantity": "success", "update": update} | lead([own])
                yield at | {"quantity": "held out", "update": update} | lead([own], judged=[judged])
            for number, sample in enumerate(values[..., -1], start=1):
                yield at | {"quantity": "success at a rate", "update": update, "rate_number": number} | summary(sample)


@rows(cases=CASES)
def leads(trained):
    """All leads, with limits that hold for all of both sets of records at once, by Student's t and Bonferroni."""
    data, updates = trained_model(trained), trained_model(trained).updates
    usual = arms_of(data.runs)
    found = [*of_arms(usual, updates, "usual"), *of_ratios(usual, updates)]
    if data.longer:
        longer, later = arms_of(data.longer), {name: arm[:, SEEN:] for name, arm in usual.items()}
        found += of_sizes(later, updates, "later seeds", [64])
        found += [*of_arms(longer, data.longer_updates, "longer"), *falls(longer, data.longer_updates.tolist())]
    tail = (1.0 - LEVEL) / (2.0 * len(TRAINED) * len(found))
    for row in found:
        half = float(stdtrit(row["replications"] - 1, 1.0 - tail)) * row["standard_error"]
        yield {"quantity": "lead"} | row | {"low_at_once": row["estimate"] - half, "high_at_once": row["estimate"] + half}


def of_arms(arms, updates, which):
    """Yield what groups of 4 lead the others by, and what division leads none by, at all looks."""
    sizes = sorted({arm for _, arm in arms if isinstance(arm, int)})
    yield from of_sizes(arms, updates, which, [size for size in sizes if size != SMALL])
    groups = {f"groups of {RESCALED}": [RESCALED]} if RESCALED in sizes else {}
    for label, of in (groups | {"larger groups": [size for size in sizes if size > RESCALED]}).items():
        sides = [[arms[name, size] for size in of] for name in reversed(ESTIMATORS)]
        yield from at_looks(f"GRPO, {label}", f"Dr. GRPO, {label}", which, BOTH, sides, updates)


def of_sizes(arms, updates, which, sizes):
    """Yield what groups of 4 lead groups of other sizes by, on average over the estimators and with each."""
    for size in sizes:
        for label, names in AVERAGED.items():
            sides = [[arms[name, each] for name in names] for each in (SMALL, size)]
            yield from at_looks(f"groups of {SMALL}", f"groups of {size}", which, label, sides, updates)


def of_ratios(arms, updates):
    """Yield what each use of ratios leads those after it by, at all looks."""
    for first, second in combinations(RATIOS.values(), 2):
        sides = [[arms[ESTIMATORS[0], arm]] for arm in (first, second)]
        yield from at_looks(first, second, "usual", ESTIMATORS[0], sides, updates)


def at_looks(first, second, which, estimator, sides, updates):
    """Yield the lead of one mean of arms over another at each look from the first on."""
    contrast = [sign / len(side) for sign, side in zip((1.0, -1.0), sides, strict=True) for _ in side]
    at = {"first": first, "second": second, "runs": which, "estimator": estimator}
    for look, update in enumerate(updates):
        if update >= FIRST:
            planned = (estimator, first, second) in PLANNED and (which, update) == ("usual", USUAL)
            yield at | {"update": update, "planned": planned} | lead([arm[..., look] for arm in sides[0] + sides[1]], contrast)


def falls(arms, updates):
    """Yield how far the lead of groups of 4 over 64 falls from the end of the usual runs to later looks."""
    early = updates.index(USUAL)
    for label, names in AVERAGED.items():
        for late in range(early + 1, len(updates)):
            parts = {(early, SMALL): 1.0, (early, 64): -1.0} | {(late, SMALL): -1.0, (late, 64): 1.0}
            sides = [arms[name, size][..., look] for look, size in parts for name in names]
            contrast = np.repeat(list(parts.values()), len(names)) / len(names)
            at = {"first": f"lead of {SMALL} over 64 at {USUAL}", "second": "the lead then", "runs": "longer", "estimator": label}
            yield at | {"update": updates[late], "planned": False} | lead(sides, contrast.tolist())


def by_size(trained, estimator, place):
    """Return the exact efficiency of an update of 128 responses by group size, at a policy."""
    data, (name, row) = trained_model(trained), PLACES[place]
    course = data.courses[name.format(estimator)]
    scores = Scores(course.success[row], course.gram[row], course.powers[row])
    sizes = sorted({run.arm.group_size for run in data.runs})
    return {size: efficiency(scores, estimator, RESPONSES // size, size) for size in sizes}


def places(*where):
    """Return cases of all records and estimators at some places."""
    return [one | {"estimator": name, "place": place} for one in CASES for name in ESTIMATORS for place in where]


@rows(cases=places(*PLACES))
def efficiencies(trained, estimator, place):
    """The exact efficiency by group size at the start and on the way."""
    for size, value in by_size(trained, estimator, place).items():
        yield {"quantity": "efficiency", "group_size": size, "estimate": value}


@check(
    stated("U9/trained model"),
    cases=places(*list(PLACES)[1:]),
    broken={"largest": True},
    setting="{trained}, {estimator}, {place}",
)
def advised(trained, estimator, place, largest=False):
    """What is lost on the way by the best size of the start; broken: by the largest size."""
    start, now = (by_size(trained, estimator, one) for one in ("start", place))
    best = max(start, key=start.get)
    facts = {"advised": best, "best": max(now, key=now.get)}
    return 1.0 - now[max(now) if largest else best] / max(now.values()), LOST, facts
