"""The runs of train_adapters.py: what each trains with, in the order in which they are made.

Learning rates are not known beforehand. A pilot of a seed that is judged nowhere tries seven of them, a factor of two apart. It
has both estimators at the second smallest and the largest group size. The other runs have four rates, a factor of two apart: the
first is half of the lowest of the pilot's four best. Runs that use a rollout several times have the lowest three and two below,
and longer runs have the lowest three and one below.
"""

from language_model_arms import RATIOS, REUSE, REUSED_SIZE, SIZES, Arm

ESTIMATORS = ("dr_grpo", "grpo")
TRIED = tuple(1e-4 * 2.0**k for k in range(7))
PILOT_SIZES, PILOT_SEED = (4, 64), 99
N_RATES, N_REUSED = 4, 3
"""Learning rates; of the runs that use rollouts several times the lowest three."""
N_LOWER = 2
"""Rates below these, for the same runs: made when, without any ratio, the lowest of the three had been best."""
SEEDS, ENOUGH = 10, 5
"""The first `ENOUGH` seeds are made whole before the others."""
LONGER, LONGER_SIZES, LONGER_SEEDS = (0, 12, 24, 48, 96, 192, 384), (4, 64), range(10, 15)
"""Numbers of updates after which success of longer runs is noted, their group sizes, and seeds that no other run has."""
MEASURED_SIZES, MEASURED_PLACE = (4, 64), 1
"""Runs of the first seed along which scores are measured, and the place of their rate."""


def pilot_arms():
    """Return the runs that choose the learning rates."""
    return [Arm(name, "Adam", size, rate, PILOT_SEED) for name in ESTIMATORS for size in PILOT_SIZES for rate in TRIED]


def rates_of(ends):
    """Return the learning rates, given success at the end of each of the pilot's runs."""
    best = {}
    for arm, end in zip(pilot_arms(), ends, strict=True):
        key = arm.estimator, arm.group_size
        if key not in best or end > best[key][0]:
            best[key] = end, arm.rate
    lowest = min(rate for _, rate in best.values())
    return tuple(lowest * 2.0 ** (k - 1) for k in range(N_RATES))


def of_seed(seed, rates):
    """Return the batches of a seed: runs of one estimator with every group size and rate."""
    return [[Arm(name, "Adam", size, rate, seed) for size in SIZES for rate in rates] for name in ESTIMATORS]


def lower_rates(rates):
    """Return the rates below those of all runs, a factor of two apart."""
    return tuple(rates[0] / 2.0**k for k in range(N_LOWER, 0, -1))


def reused(seeds, rates):
    """Return the batches of runs that use each rollout several times, two seeds in one."""
    found = [
        [Arm("dr_grpo", "Adam", REUSED_SIZE, rate, seed, ratio, REUSE) for ratio in RATIOS for rate in rates] for seed in seeds
    ]
    return [[arm for arms in found[place : place + 2] for arm in arms] for place in range(0, len(found), 2)]


def batches(rates):
    """Return all runs in batches that are made at once, those that decide first."""
    first, later, several = range(ENOUGH), range(ENOUGH, SEEDS), rates[:N_REUSED]
    found = [batch for seed in first for batch in of_seed(seed, rates)] + reused(first, several)
    found += [batch for seed in later for batch in of_seed(seed, rates)] + reused(later, several)
    return found + reused(range(SEEDS), lower_rates(rates))


def longer(rates):
    """Return the batches of longer runs, one for each seed, at the lowest three rates of the others and the one below."""
    tried = lower_rates(rates)[-1:] + rates[:3]
    return [
        [Arm(name, "Adam", size, rate, seed) for name in ESTIMATORS for size in LONGER_SIZES for rate in tried]
        for seed in LONGER_SEEDS
    ]


def is_measured(arm, rates):
    """Return whether scores are measured along a run."""
    of_first = arm.seed == 0 and arm.reuse == 1
    return of_first and arm.group_size in MEASURED_SIZES and arm.rate == rates[MEASURED_PLACE]
