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

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from grpo_theory.arrays import Array, Integers
from grpo_theory.data import TrainedModel, TrainedRun, trained_model
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.best_rate import lead
from simulations.runs.frontier_statements import LOST
from simulations.runs.recorded_runs import RATIOS, Arm, arms_of
from simulations.runs.recorded_scores import PLACES, Scores, efficiency
from simulations.statements import stated

ADVICE = stated("U9/trained model")

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


def cells(quick: bool) -> list[Cell]:
    """One cell for each set of records; they are what they are, so quick is no different."""
    return [Cell({"trained": name, "data": trained_model(name).provenance["sha256"]}) for name in TRAINED]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Read success by arm and number of updates, leads, and the exact efficiencies."""
    data = trained_model(settings["trained"])
    usual, found = arms_of(data.runs), list(_success(data.runs, "usual", data.updates))
    leads = list(_leads(usual, data.updates, "usual")) + list(_ratios(usual, data.updates))
    if data.longer:
        later, longer = {name: arm[:, SEEN:] for name, arm in usual.items()}, arms_of(data.longer)
        found += _success(data.longer, "longer", data.longer_updates)
        leads += _of_sizes(later, data.updates, "later seeds", [64])
        leads += _leads(longer, data.longer_updates, "longer")
        leads += _falls(longer, data.longer_updates)
    return found + at_once(leads) + list(_efficiencies(data))


def _success(runs: Iterable[TrainedRun], which: str, updates: Integers) -> Iterator[dict[str, Any]]:
    """Yield success and held-out success of each arm by number of updates, and success at each rate at the end."""
    runs = list(runs)
    held_out = arms_of(runs, "held_out")
    for (estimator, arm), values in arms_of(runs).items():
        named = {"arm": f"groups of {arm}", "group_size": arm} if isinstance(arm, int) else {"arm": arm}
        at = {"runs": which, "estimator": estimator} | named
        for look, update in enumerate(updates.tolist()):
            own = lead((values[..., look],))
            judged = lead((values[..., look],), judged=(held_out[estimator, arm][..., look],))
            yield at | {"quantity": "success", "update": update} | own
            yield at | {"quantity": "held out", "update": update} | judged
        for number, sample in enumerate(values[..., -1], start=1):
            yield at | {"quantity": "success at a rate", "update": update, "rate_number": number} | summary(sample)


def _leads(arms: Mapping[Arm, Array], updates: Integers, which: str) -> Iterator[dict[str, Any]]:
    """Yield what groups of 4 lead the others by, and what division leads none by, at all looks."""
    sizes = sorted({arm for _, arm in arms if isinstance(arm, int)})
    yield from _of_sizes(arms, updates, which, [size for size in sizes if size != SMALL])
    groups = {f"groups of {RESCALED}": [RESCALED]} if RESCALED in sizes else {}
    groups["larger groups"] = [size for size in sizes if size > RESCALED]
    for label, of in groups.items():
        sides = [[arms[name, size] for size in of] for name in reversed(ESTIMATORS)]
        at = {"first": f"GRPO, {label}", "second": f"Dr. GRPO, {label}", "runs": which, "estimator": BOTH}
        yield from _at_looks(at, sides, updates)


def _of_sizes(arms: Mapping[Arm, Array], updates: Integers, which: str, sizes: list[int]) -> Iterator[dict[str, Any]]:
    """Yield what groups of 4 lead groups of other sizes by, on average over the estimators and with each."""
    for size in sizes:
        for label, names in AVERAGED.items():
            sides = [[arms[name, each] for name in names] for each in (SMALL, size)]
            at = {"first": f"groups of {SMALL}", "second": f"groups of {size}", "runs": which, "estimator": label}
            yield from _at_looks(at, sides, updates)


def _ratios(arms: Mapping[Arm, Array], updates: Integers) -> Iterator[dict[str, Any]]:
    """Yield what each use of ratios leads those after it by, at all looks."""
    ratios = list(RATIOS.values())
    for place, first in enumerate(ratios):
        for second in ratios[place + 1 :]:
            sides = [[arms[ESTIMATORS[0], arm]] for arm in (first, second)]
            at = {"first": first, "second": second, "runs": "usual", "estimator": ESTIMATORS[0]}
            yield from _at_looks(at, sides, updates)


def _at_looks(at: dict[str, Any], sides: list[list[Array]], updates: Integers) -> Iterator[dict[str, Any]]:
    """Yield the lead of one mean of arms over another at each look from the first on."""
    arms, contrast = sides[0] + sides[1], [sign / len(side) for sign, side in zip((1.0, -1.0), sides, strict=True) for _ in side]
    for look, update in enumerate(updates.tolist()):
        if update >= FIRST:
            planned = (at["estimator"], at["first"], at["second"]) in PLANNED and (at["runs"], update) == ("usual", USUAL)
            yield (
                {"quantity": "lead", "update": update, "planned": planned} | at | lead([arm[..., look] for arm in arms], contrast)
            )


def _falls(arms: Mapping[Arm, Array], updates: Integers) -> Iterator[dict[str, Any]]:
    """Yield how far the lead of groups of 4 over 64 falls from the end of the usual runs to later looks."""
    early = updates.tolist().index(USUAL)
    signs = {(early, SMALL): 1.0, (early, 64): -1.0}
    for label, names in AVERAGED.items():
        for late in range(early + 1, len(updates)):
            parts = signs | {(late, SMALL): -1.0, (late, 64): 1.0}
            sides = [arms[name, size][..., look] for look, size in parts for name in names]
            contrast = np.repeat(list(parts.values()), len(names)) / len(names)
            at = {"first": f"lead of {SMALL} over 64 at {USUAL}", "second": "the lead then", "runs": "longer", "estimator": label}
            yield {"quantity": "lead"} | at | {"update": int(updates[late]), "planned": False} | lead(sides, contrast.tolist())


def at_once(leads: Rows) -> Rows:
    """Return leads with limits that hold for all leads of all sets of records at once, by Student's t and Bonferroni."""
    tail = (1.0 - LEVEL) / (2.0 * len(TRAINED) * len(leads))
    for row in leads:
        half = float(stdtrit(row["replications"] - 1, 1.0 - tail)) * row["standard_error"]
        row |= {"low_at_once": row["estimate"] - half, "high_at_once": row["estimate"] + half}
    return leads


def _by_size(data: TrainedModel, estimator: str, place: str, sizes: Integers) -> list[float]:
    """Return the exact efficiency of an update of 128 responses by group size, at a policy."""
    name, row = PLACES[place]
    course = data.courses[name.format(estimator)]
    scores = Scores(course.success[row], course.gram[row], course.powers[row])
    return [efficiency(scores, estimator, RESPONSES // size, size) for size in sizes.tolist()]


def _efficiencies(data: TrainedModel) -> Iterator[dict[str, Any]]:
    """Yield the exact efficiency by group size at the start and on the way."""
    sizes = np.array(sorted({run.arm.group_size for run in data.runs}))
    for estimator in ESTIMATORS:
        for place in PLACES:
            for size, value in zip(sizes.tolist(), _by_size(data, estimator, place, sizes), strict=True):
                at = {"quantity": "efficiency", "estimator": estimator, "place": place, "group_size": size}
                yield at | {"estimate": value} | EXACT


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each arm and number of updates, each lead, and each efficiency."""
    return [{"trained": settings["trained"]} | row | {"prediction": np.nan} for row in results[0]]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge one size for the whole way by exact efficiencies; the control keeps the largest size."""
    known = table[table["quantity"] == "efficiency"]
    for (trained, estimator), course in known.groupby(["trained", "estimator"], sort=False):
        yield from _along(f"{trained}, {estimator}", course)


def _along(setting: str, course: pd.DataFrame) -> Iterator[Claim]:
    """Judge the efficiencies of an estimator at all places."""
    start = course[course["place"] == "start"].set_index("group_size")["estimate"]
    for place, part in course.groupby("place", sort=False):
        now = part.set_index("group_size")["estimate"]
        highest, advised = largest(now), float(start.index[start == largest(start)][0])
        facts = {"advised": advised, "best": float(now.index[now == highest][0])}
        own, control = (Evidence(1.0 - float(now[size]) / highest, LOST) for size in (advised, now.index.max()))
        if place != "start":
            yield ADVICE.claim(f"{setting}, {place}", own, control, facts=facts)
