"""The runs of train_language_model.py: what each trains with, in the order in which they are made."""

import zlib
from dataclasses import dataclass

SIZES = (2, 4, 8, 16, 32, 64)
RESPONSES = 128
"""Of an update."""
LOOKS = (0, 3, 6, 12, 24, 48, 96)
"""Numbers of updates after which success is noted."""
ADAM, SGD = (1e-4, 2e-4, 4e-4), {"dr_grpo": (0.01, 0.02, 0.04), "grpo": (0.003, 0.006, 0.012)}
"""Learning rates; plain steps are in balanced coordinates. The lowest of Adam's was behind at every group size that the first
seed had been trained with. So the other seeds do without it."""
REUSE, REUSED_RATE, REUSED_SIZE = 4, 4e-4, 8
RATIOS = ("by sign", "upper only", "unclipped", "none")
SEEDS = 5
MEASURED_SIZES, MEASURED_RATE, MEASURED_LOOKS = (4, 64), 2e-4, (24, 96)
"""Runs of the first seed along which scores are measured."""
SEED = 20261127


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
        return f"{self.estimator}-{self.optimiser}-{self.group_size}-{self.rate:g}-{self.ratio}-{self.reuse}-{self.seed}".replace(
            " ", "_"
        )

    @property
    def key(self):
        """What its random numbers are keyed by."""
        return [SEED, zlib.crc32(self.name.encode())]

    @property
    def measured(self):
        """The numbers of updates after which its scores are measured."""
        of_first = self.seed == 0 and self.reuse == 1 and self.optimiser == "Adam"
        return MEASURED_LOOKS if of_first and self.group_size in MEASURED_SIZES and self.rate == MEASURED_RATE else ()


def _with_adam(sizes, rates, seed):
    return [Arm(name, "Adam", size, rate, seed) for size in sizes for name in ("dr_grpo", "grpo") for rate in rates]


def first_arms():
    """Return the runs of the first seed with Adam: every estimator, group size and learning rate."""
    return _with_adam(SIZES, ADAM, 0)


def main_arms(seed):
    """Return the runs of a later seed that decide: group sizes a factor of four apart, without the lowest learning rate."""
    return _with_adam(SIZES[1::2], ADAM[1:], seed)


def other_arms(seed):
    """Return the runs of a later seed with the group sizes between these."""
    return _with_adam(SIZES[::2], ADAM[1:], seed)


def reused_arms(seed):
    """Return the runs of a seed that use each rollout several times."""
    return [Arm("dr_grpo", "Adam", REUSED_SIZE, REUSED_RATE, seed, ratio, REUSE) for ratio in RATIOS]


def plain_arms(seed):
    """Return the runs of a seed with plain steps."""
    return [Arm(name, "SGD", size, rate, seed) for size in (2, 8, 64) for name, rates in SGD.items() for rate in rates]


def batches():
    """Return all runs in batches, those that decide first; what is shipped are whole batches."""
    found = [first_arms()] + [main_arms(seed) for seed in range(1, SEEDS)]
    found += [reused_arms(seed) for seed in range(SEEDS)] + [other_arms(seed) for seed in range(1, SEEDS)]
    return found + [plain_arms(seed) for seed in range(SEEDS)]
