"""The runs of train_language_model.py: what each trains with, in batches that are made at once, those that decide first.

The adapters' learning rates are not known beforehand. A pilot of a seed that is judged nowhere tries seven of them, a factor of
two apart. It has both estimators, at the second smallest and the largest group size. The other runs have four rates, a factor of
two apart: the first is half of the lowest of the pilot's four best. Runs that use a rollout several times have the lowest three
and two below. Longer runs have the lowest three and one below.
"""

import zlib
from dataclasses import dataclass

SEED = 20261127
ESTIMATORS, SIZES = ("dr_grpo", "grpo"), (2, 4, 8, 16, 32, 64)
RESPONSES = 128
"""Of an update."""
LOOKS = (0, 3, 6, 12, 24, 48, 96)
"""Numbers of updates after which success is noted."""
REUSE, REUSED_SIZE, RATIOS = 4, 8, ("by sign", "upper only", "unclipped", "none")
MEASURED_SIZES, MEASURED_LOOKS = (4, 64), (24, 96)
"""Runs of the first seed along which scores are measured."""
ADAM, SGD = (1e-4, 2e-4, 4e-4), {"dr_grpo": (0.01, 0.02, 0.04), "grpo": (0.003, 0.006, 0.012)}
"""The last block's rates; plain steps are in balanced coordinates. The lowest of Adam's was behind at every group size that the
first seed had been trained with. So the other seeds do without it."""
LAST_BLOCK_SEEDS, LAST_BLOCK_MEASURED = 5, 2e-4
TRIED, PILOT_SIZES, PILOT_SEED = tuple(1e-4 * 2.0**k for k in range(7)), (4, 64), 99
"""The adapters' pilot."""
SEEDS, ENOUGH = 10, 5
"""The first `ENOUGH` seeds are made whole before the others."""
LONGER, LONGER_SIZES, LONGER_SEEDS = (0, 12, 24, 48, 96, 192, 384), (4, 64), range(10, 15)
"""Numbers of updates after which success of longer runs is noted, their group sizes, and seeds that no other run has."""


@dataclass(frozen=True)
class Arm:
    """A run.

    Attributes
    ----------
    estimator : str
        "dr_grpo", or "grpo", which divides by the group's standard deviation.
    optimiser : str
        "Adam", or "SGD" in balanced coordinates.
    group_size : int
    rate : float
    seed : int
    ratio : str
        How a response's importance ratio is used where a rollout is used several times. It is "by sign" (the clip of PPO), "upper
        only" (TIC's), "unclipped", or "none", without ratio.
    reuse : int
        Updates on one rollout.
    """

    estimator: str
    optimiser: str
    group_size: int
    rate: float
    seed: int
    ratio: str = "none"
    reuse: int = 1

    @property
    def name(self):
        """What the file of its records is called."""
        settings = (self.estimator, self.optimiser, self.group_size, f"{self.rate:g}", self.ratio, self.reuse, self.seed)
        return "-".join(map(str, settings)).replace(" ", "_")

    @property
    def key(self):
        """What its random numbers are keyed by."""
        return [SEED, zlib.crc32(self.name.encode())]

    def is_measured(self, rate):
        """Return whether scores are measured along the run, given at which rate they are."""
        usual = self.seed == 0 and self.reuse == 1 and self.optimiser == "Adam"
        return usual and self.group_size in MEASURED_SIZES and self.rate == rate


def grid(optimiser, sizes, rates, seed):
    """Return the runs of a seed with all sizes and rates; each estimator may have rates of its own."""
    by = rates if isinstance(rates, dict) else dict.fromkeys(ESTIMATORS, rates)
    return [Arm(name, optimiser, size, rate, seed) for size in sizes for name in ESTIMATORS for rate in by[name]]


def reused(rates, seed):
    """Return the runs of a seed that use each rollout several times."""
    return [Arm("dr_grpo", "Adam", REUSED_SIZE, rate, seed, ratio, REUSE) for ratio in RATIOS for rate in rates]


def last_block_batches():
    """Return all runs of the last block; what is shipped are whole batches."""
    later, every = range(1, LAST_BLOCK_SEEDS), range(LAST_BLOCK_SEEDS)
    found = [grid("Adam", SIZES, ADAM, 0)] + [grid("Adam", SIZES[1::2], ADAM[1:], seed) for seed in later]
    found += [reused(ADAM[2:], seed) for seed in every] + [grid("Adam", SIZES[::2], ADAM[1:], seed) for seed in later]
    return found + [grid("SGD", (2, 8, 64), SGD, seed) for seed in every]


def pilot():
    """Return the runs that choose the adapters' learning rates."""
    return grid("Adam", PILOT_SIZES, TRIED, PILOT_SEED)


def rates_of(ends):
    """Return the learning rates, given success at the end of each of the pilot's runs."""
    best = {}
    for arm, end in zip(pilot(), ends, strict=True):
        key = arm.estimator, arm.group_size
        if key not in best or end > best[key][0]:
            best[key] = end, arm.rate
    return tuple(min(rate for _, rate in best.values()) * 2.0 ** (k - 1) for k in range(4))


def adapter_batches(rates):
    """Return all runs of adapters but the longer ones."""
    found = []
    for seeds in (range(ENOUGH), range(ENOUGH, SEEDS)):
        found += [grid("Adam", SIZES, rates, seed) for seed in seeds] + [reused(rates[:3], seed) for seed in seeds]
    return found + [reused((rates[0] / 4.0, rates[0] / 2.0), seed) for seed in range(SEEDS)]


def longer_batches(rates):
    """Return the longer runs, at the lowest three rates of the others and the one below."""
    return [grid("Adam", LONGER_SIZES, (rates[0] / 2.0, *rates[:3]), seed) for seed in LONGER_SEEDS]
