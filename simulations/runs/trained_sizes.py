"""U9: SmolLM2, its last block or adapters in all blocks trained with Adam, at several group sizes and equal responses.

The shipped records of `gt.data.trained_model` are read. Each arm takes its own best learning rate, and where a group size is
chosen, the best of these. For each seed the choice is made on the other seeds, so a run that chose is never judged. Limits count
that these choices make seeds depend on each other. All updates have 128 responses. Five or ten seeds decide little at the level
of the whole report, so leads in success have 95% limits and no verdict. Exact efficiencies of one update along the way are judged
instead. The control has the largest group size.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from grpo_theory.arrays import Array, Integers
from grpo_theory.data import TrainedModel, TrainedRun, trained_model
from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.evidence.reading import largest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from simulations.runs.frontier_statements import LOST
from simulations.runs.recorded_scores import PLACES, Scores, efficiency
from simulations.runs.seed_limits import jackknife, with_limits
from simulations.sources import DEMYSTIFYING, OURS

ADVICE = Statement(
    "U9/trained model",
    f"question beside {DEMYSTIFYING}, Theorem 7",
    "SmolLM2 learns, its last block or adapters in all blocks. The group size of the highest efficiency at the start loses at "
    "most a tenth of the highest efficiency on the way",
    "upper bound",
    whose=OURS,
)

TRAINED = ("last block", "adapters")
"""What learns: the block over frozen states, or low-rank adapters on all matrices of all blocks (LoRA)."""
RESPONSES = 128
ESTIMATORS = ("dr_grpo", "grpo")
CLIPPED, FACTOR = "by sign", 4
RESCALED = 2
SEEN = 5
"""The seeds whose leads had been read when the others were made, as planned from the start: these repeat what those had shown."""
SMALLEST = 3
"""The place of 12 updates, an eighth of a run, as the smallest budget."""
USUAL = 96
"""Updates of the usual runs: leads of longer runs are read from there on, and what is lost of them."""


def cells(quick: bool) -> list[Cell]:
    """One cell for each set of records; they are what they are, so quick is no different."""
    return [Cell({"trained": name, "data": trained_model(name).provenance["sha256"]}) for name in TRAINED]


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> Rows:
    """Read success by group size and budget, leads, ratios, and the exact efficiencies."""
    data = trained_model(settings["trained"])
    table = {name: Arms.of(data.runs, name) for name in ESTIMATORS}
    found: Rows = []
    for name, arms in table.items():
        found += arms.rows(name, data.updates)
    found += _contrasts(data, table)
    return found + list(_ratios(data)) + _longer(data) + list(_efficiencies(data))


class Arms:
    """Success of runs with Adam, by group size or use of ratios, and by rate, seed and number of updates."""

    def __init__(self, labels: np.ndarray, rates: Array, success: Array, held_out: Array) -> None:
        self.labels, self.rates = labels, rates
        self.success, self.held_out = success, held_out

    @classmethod
    def of(cls, runs: Iterable[TrainedRun], estimator: str) -> "Arms":
        """Read an estimator's runs that use a rollout once, by group size."""
        own = (run for run in runs if (run.arm.estimator, run.arm.optimiser, run.arm.reuse) == (estimator, "Adam", 1))
        return cls.by({(run.arm.group_size, run.arm.rate, run.seed): run for run in own})

    @classmethod
    def reusing(cls, runs: Iterable[TrainedRun]) -> "Arms":
        """Read the runs that use a rollout several times, by their use of ratios."""
        return cls.by({(run.arm.ratio, run.arm.rate, run.seed): run for run in runs if run.arm.reuse > 1})

    @classmethod
    def by(cls, runs: Mapping[tuple[Any, float, int], TrainedRun]) -> "Arms":
        """Read runs by label, rate and seed where all seeds have the label or rate: arrays (labels, rates, seeds, updates)."""
        seeds = sorted({seed for _, _, seed in runs})
        labels, rates = (
            [one for one in sorted({key[place] for key in runs}) if {key[2] for key in runs if key[place] == one} == set(seeds)]
            for place in (0, 1)
        )

        def read(what: Callable[[TrainedRun], Array]) -> Array:
            return np.array([[[what(runs[label, rate, seed]) for seed in seeds] for rate in rates] for label in labels])

        return cls(np.array(labels), np.array(rates), read(lambda run: run.success), read(lambda run: run.held_out))

    def tuned(self, values: Array | None = None) -> Array:
        """Return success, or other values, of each seed at the rate that the other seeds choose: (sizes, seeds, updates)."""
        values = self.success if values is None else values
        chosen = self.choices()
        return np.take_along_axis(values, chosen[:, None], axis=1)[:, 0]

    def choices(self) -> Integers:
        """Return the places of the rates that the other seeds choose, (sizes, seeds, updates)."""
        return np.asarray(_others(self.success, axis=2).argmax(axis=1))

    def best(self, update: int) -> Integers:
        """Return the place of the best group size by the other seeds, (seeds,), at the place of a number of updates."""
        return np.asarray(self.scores(update).argmax(axis=0))

    def scores(self, update: int) -> Array:
        """Return the other seeds' mean success at their best rate, (sizes, seeds), at the place of a number of updates."""
        return np.asarray(_others(self.success[..., update], axis=2).max(axis=1))

    def without(self, seed: int | None) -> "Arms":
        """Return the arms without a seed, or as they are."""
        if seed is None:
            return self
        kept = [np.delete(values, seed, axis=2) for values in (self.success, self.held_out)]
        return Arms(self.labels, self.rates, *kept)

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return int(self.success.shape[2])

    def rows(self, estimator: str, updates: Integers) -> Rows:
        """Return success and held-out success by group size and number of updates."""
        table: Rows = []
        chosen = self.choices()
        success = jackknife(lambda seed: self.without(seed).tuned().mean(axis=1), self.seeds)
        held_out = jackknife(lambda seed: (part := self.without(seed)).tuned(part.held_out).mean(axis=1), self.seeds)
        for c, update in enumerate(updates.tolist()):
            for s, size in enumerate(self.labels.tolist()):
                at = {"estimator": estimator, "group_size": size, "update": update}
                at["rate"] = float(np.median(self.rates[chosen[s, :, c]]))
                for quantity, found in (("success", success), ("held out", held_out)):
                    table.append(at | {"quantity": quantity} | {name: value[s, c].item() for name, value in found.items()})
        return table


def _others(values: Array, axis: int) -> Array:
    """Return the mean over the other seeds of each."""
    count = values.shape[axis]
    return (values.sum(axis=axis, keepdims=True) - values) / (count - 1)


def _contrasts(data: TrainedModel, table: Mapping[str, Arms]) -> Rows:
    """Return leads in success at the end: of the size that is advised, the early best size, and of division."""
    advised = {name: int(np.argmax(_by_size(data, name, "start", arms.labels))) for name, arms in table.items()}
    seeds = next(iter(table.values())).seeds

    def without(seed: int | None) -> Array:
        return np.array(list(_leads({name: arms.without(seed) for name, arms in table.items()}, advised).values()))

    found, names = jackknife(without, seeds), _leads(table, advised)
    rows: Rows = [
        {"quantity": "lead", "lead": name} | with_limits({key: values[i].item() for key, values in found.items()})
        for i, name in enumerate(names)
    ]
    for rate, lead in _at_rates(table, advised).items():
        at = {"lead": "advised less largest", "rate": rate}
        rows.append({"quantity": "lead at a rate"} | at | with_limits(summary(lead)))
        if seeds > SEEN:
            rows.append({"quantity": "lead at a rate, later seeds"} | at | with_limits(summary(lead[SEEN:])))
    return rows


def _leads(table: Mapping[str, Arms], advised: Mapping[str, int]) -> dict[str, float]:
    """Return mean leads over both estimators, each size at its own best rate."""
    found: dict[str, list[Array]] = {"advised less best": [], "advised less largest": [], "later less early best": []}
    for name, arms in table.items():
        end, own = arms.tuned()[..., -1], advised[name]
        seeds, early = np.arange(end.shape[1]), arms.best(SMALLEST)
        found["advised less best"].append(end[own] - end[arms.best(-1), seeds])
        found["advised less largest"].append(end[own] - end[-1])
        found["later less early best"].append(end[_later(arms, early), seeds] - end[early, seeds])
    plain, divided = (table[name].tuned()[..., -1] for name in ESTIMATORS)
    # In groups of 2 division only multiplies the learning rate: there is nothing to gain.
    found["divided less plain"] = [(divided - plain)[table[ESTIMATORS[0]].labels > RESCALED]]
    return {name: float(np.mean(parts)) for name, parts in found.items()}


def _at_rates(table: Mapping[str, Arms], advised: Mapping[str, int]) -> dict[float, Array]:
    """Return by rate, which all arms then share, how far the advised size leads the largest: by seed, over both estimators."""
    leads = [arms.success[advised[name], :, :, -1] - arms.success[-1, :, :, -1] for name, arms in table.items()]
    rates = next(iter(table.values())).rates.tolist()
    return dict(zip(rates, np.mean(leads, axis=0), strict=True))


def _later(arms: Arms, early: Integers) -> Integers:
    """Return the place of the best size, by the other seeds, of those that are `FACTOR` times the early one; else the largest."""
    scores = arms.scores(-1)
    allowed = arms.labels[:, None] >= FACTOR * arms.labels[early]
    allowed[-1] = True
    return np.asarray(np.where(allowed, scores, -np.inf).argmax(axis=0))


def _ratios(data: TrainedModel) -> Iterator[dict[str, Any]]:
    """Yield success where rollouts serve several updates, by the use of ratios and rate, and its lead over PPO's clip."""
    runs: dict[tuple[float, str], dict[int, TrainedRun]] = {}
    for run in data.runs:
        if run.arm.reuse > 1:
            runs.setdefault((run.arm.rate, run.arm.ratio), {})[run.seed] = run
    last = int(data.updates[-1])
    ends = {}
    for (rate, ratio), by_seed in runs.items():
        kept, at = [by_seed[seed] for seed in sorted(by_seed)], {"ratio": ratio, "rate": rate}
        success, ends[rate, ratio] = np.array([run.success for run in kept]), np.array([run.success[-1] for run in kept])
        dropped = np.array([run.dropped[-1] for run in kept])
        for update, sample in zip(data.updates.tolist(), success.T, strict=True):
            yield {"quantity": "reused, success", "update": update} | at | summary(sample)
        yield {"quantity": "reused, dropped", "update": last} | at | summary(dropped)
    for (rate, ratio), sample in ends.items():
        if ratio != CLIPPED:
            at = {"quantity": "reused, lead", "ratio": ratio, "rate": rate, "update": last}
            yield at | with_limits(summary(sample - ends[rate, CLIPPED]))
    yield from _ratios_at_own_rates(Arms.reusing(data.runs), data.updates)


def _ratios_at_own_rates(arms: Arms, updates: Integers) -> Iterator[dict[str, Any]]:
    """Yield success, each use of ratios at its own best rate for so many updates, and its lead over PPO's clip."""
    clipped = arms.labels.tolist().index(CLIPPED)

    def without(seed: int | None) -> Array:
        mean = arms.without(seed).tuned().mean(axis=1)
        return np.array([mean, mean - mean[clipped]])

    found, rates = jackknife(without, arms.seeds), np.median(arms.rates[arms.choices()], axis=1)
    for row, quantity in enumerate(("success", "lead")):
        for place, ratio in enumerate(arms.labels.tolist()):
            for c, update in enumerate(updates.tolist()):
                at = {"quantity": f"reused, {quantity} at own best rates", "ratio": ratio, "update": update}
                if (quantity, place) != ("lead", clipped):
                    own = with_limits({name: value[row, place, c].item() for name, value in found.items()})
                    yield at | {"rate": float(rates[place, c])} | own


def _longer(data: TrainedModel) -> Rows:
    """Return success of longer runs by group size, and how far the smallest leads the largest, each at its own best rate."""
    if not data.longer:
        return []
    table = {name: Arms.of(data.longer, name) for name in ESTIMATORS}
    rows = [
        row | {"quantity": f"longer, {row['quantity']}"}
        for name, arms in table.items()
        for row in arms.rows(name, data.longer_updates)
    ]

    looks = data.longer_updates.tolist()

    def without(seed: int | None) -> Array:
        leads = [(end := arms.without(seed).tuned().mean(axis=1))[0] - end[-1] for arms in table.values()]
        both = np.array([np.mean(leads, axis=0), *leads])
        return np.array([both, both[:, looks.index(USUAL), None] - both])

    found = jackknife(without, next(iter(table.values())).seeds)
    for row, quantity in enumerate(("lead", "lost of the lead")):
        for e, name in enumerate(("both", *table)):
            for c, update in enumerate(looks):
                at = {"quantity": f"longer, {quantity}", "lead": "smallest less largest", "estimator": name, "update": update}
                if update >= USUAL + row:
                    rows.append(at | with_limits({key: value[row, e, c].item() for key, value in found.items()}))
    for rate, lead in _at_rates(table, dict.fromkeys(table, 0)).items():
        at = {"quantity": "longer, lead at a rate", "lead": "smallest less largest", "rate": rate, "update": looks[-1]}
        rows.append(at | with_limits(summary(lead)))
    return rows


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
