"""T9, T10, T11: the average squared gradient against N, |G| and T.

Runs on a problem of one parameter are exact, with infinitely large groups, or simulated. The controls have no baseline, divide by
the own length, or divide by the squared horizon.
"""

from itertools import product

import numpy as np
from scipy.optimize import brentq

import grpo_theory as gt
from grpo_theory.evidence import log_log_slope
from grpo_theory.evidence.reading import mean_of
from grpo_theory.harness import check, run
from simulations.seeds import child_seed, seed_of
from simulations.sequence.stopping import HIGH, LOW, fields, mean_path, stopping, update_rule
from simulations.statements import stated

T9, T10, T11 = stated("T9", "T10", "T11")

NEAR = 0.1
"""Half-way to the next power of N^(1/5), far below the halves that tell the theorems apart."""
STEPS, QUICK_STEPS = tuple(64 * 2**k for k in range(11)), tuple(1024 * 2**k for k in range(5))
"""Numbers of updates N of exact runs; the step is 1/(sqrt N log V), as the theorems have it."""
SIMULATED, QUICK_SIMULATED = (64, 1024, 4096, 16384), (64, 1024, 4096)
GROUPS = (2, 4, 16, 64)
FEW_STEPS = 64
ENDED = 0.01
"""How near to its end a run must have come, relative to the squared gradient there."""
RUNS, QUICK_RUNS = 256, 64
HORIZONS = (2, 4)
LAST = 4
"""Slopes in N are taken from a fourth of the most steps on, where the start is nearly forgotten."""


def exact_cases(quick, equal=False):
    """Infinitely large groups at each horizon; of equal lengths only the longest run."""
    steps = QUICK_STEPS if quick else STEPS
    return [{"horizon": horizon, "equal": equal, "steps": list(steps[-1:] if equal else steps)} for horizon in HORIZONS]


def simulated_cases(quick, equal=False):
    """Simulated runs: the smallest group and many numbers of updates, or of equal lengths many groups and few updates."""
    steps = [FEW_STEPS] if equal else list(QUICK_SIMULATED if quick else SIMULATED)
    common = {"what": "simulated", "horizon": 2, "runs": QUICK_RUNS if quick else RUNS}
    return [{**common, "equal": equal, "steps": steps, "groups": list(GROUPS) if equal else [2]}]


@run()
def exact(horizon, equal, rule, steps):
    """Return the average squared gradient and the last one for every N, and the floor: that where the mean update is zero."""
    update, gradient = fields(horizon, equal, rule)
    paths = [mean_path(update, 1.0 / (np.sqrt(count) * np.log(2.0)), count) for count in steps]
    squares = [gradient(np.clip(path, LOW, HIGH)) ** 2 for path in paths]
    floor = float(gradient(brentq(lambda x: float(update(x)), 0.1, 2.9))) ** 2
    same = {name: [value] * len(steps) for name, value in (("floor", floor), ("standard_error", 0.0), ("replications", 0))}
    return {"updates": steps, "estimate": [one[:-1].mean() for one in squares], "last": [one[-1] for one in squares], **same}


@run()
def simulated(horizon, equal, rule, steps, groups, runs, rng, **case):
    """Return the average squared gradient for every N and G."""
    problem, update, (_, gradient) = stopping(horizon, equal), update_rule(rule, horizon, True), fields(horizon, equal, rule)
    found = []
    for count, size in product(steps, groups):
        seed, step = child_seed(seed_of(rng), count, size), gt.Constant(1.0 / (np.sqrt(count) * np.log(2.0)))
        sizes = {"batch_size": 1, "group_size": size, "steps": count, "replications": runs, "workers": 1}
        records = gt.simulate_records(problem, np.zeros(1), update, step, **sizes, rng=seed)
        squares = [gradient(np.clip(one.path[:, :-1, 0], LOW, HIGH)) ** 2 for one in records]
        found.append([count, size, *mean_of(np.concatenate([one.mean(axis=1) for one in squares]))])
    return dict(zip(("updates", "groups", "estimate", "standard_error", "replications"), np.transpose(found), strict=True))


def slope(found, along="updates"):
    """Return the log-log slope of the left side along a column, its error, and the number of runs."""
    return *log_log_slope(found[along], found["estimate"], found["standard_error"]), found["replications"].min()


def late(found):
    """Return the rows from a fourth of the most updates on."""
    kept = LAST * found["updates"] >= found["updates"].max()
    return {name: values[kept] for name, values in found.items()}


@check(
    *stated("T9/limit", "T9/corrected", "T10/limit", "T10/N"),
    of=exact,
    each={"rule": ("own length", "constant", "no baseline")},
    cases=exact_cases,
    broken={"wrong": True},
    setting="T = {horizon}",
)
def without_noise(found, wrong=False):
    """Where runs end, and slopes in N; in the broken case of another rule."""
    names = ("no baseline", "own length", "constant") if wrong else ("own length", "constant", "own length")
    own, constant, ended = (found[name] for name in names)
    return {
        "T9/limit": (own["floor"][0], 0.0),
        "T9/corrected": (abs(ended["last"][-1] / found["own length"]["floor"][0] - 1.0), ENDED),
        "T10/limit": (constant["floor"][0], 0.0),
        "T10/N": (slope(late(own if wrong else constant)), NEAR - 0.5),
    }


@check(
    stated("T11/T"),
    of=exact,
    each={"horizon": HORIZONS},
    cases=lambda quick: [{**exact_cases(quick, equal=True)[0], "rule": "constant"}],
    broken={"rule": "squared"},
    setting="T = 2, 4",
)
def growth(found):
    """The slope of the left side in T, with equal lengths."""
    return log_log_slope(HORIZONS, [found[horizon]["estimate"][0] for horizon in HORIZONS])[0], 1.0 + NEAR


@check(
    *stated("T11/N", "T11/floor"),
    of=simulated,
    each={"rule": ("constant", "own length", "no baseline")},
    cases=simulated_cases,
    broken={"rules": {"T11/N": "no baseline", "T11/floor": "own length"}},
    sound={"rules": {"T11/floor": "no baseline"}},
    setting="T = 2, G = 2",
)
def small_groups(found, rules=None):
    """Slopes in N at the smallest group: at most -0.4, and 0 as at a floor, which there is without a baseline."""
    wanted = {"T11/N": NEAR - 0.5, "T11/floor": 0.0}
    rules = rules or dict.fromkeys(wanted, "constant")
    return {name: (slope(late(found[rule])), wanted[name]) for name, rule in rules.items()}


@check(
    stated("T9/G"),
    of=simulated,
    cases=lambda quick: [{**simulated_cases(quick, equal=True)[0], "rule": "own length"}],
    broken={"rule": "no baseline"},
    setting=f"equal lengths, T = 2, N = {FEW_STEPS}",
)
def larger_groups(found):
    """The slope in the size of the group, with equal lengths."""
    return slope(found, "groups"), NEAR - 1.0
