"""Whether an estimator is the one whose error is planned: rewards less the mean of the group's others, or a multiple of that."""

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.affine import affine_coefficients
from grpo_theory.estimation.aggregation import constant_length, whole


def is_leave_one_out(estimator: Estimator, group_size: int) -> bool:
    """Return whether on policy the estimate is the leave-one-out gradient times a constant above 0.

    It is if the advantage is a constant times Z - group mean, which is found out on symbols and so holds for all rewards
    (`affine_coefficients`), and the aggregation weighs all tokens alike, whatever the lengths. On policy ratios are 1 and clips
    idle.
    """
    aggregation = estimator.aggregation
    if aggregation.pool or aggregation.function not in (whole, constant_length):
        return False
    found = affine_coefficients(estimator.advantage, group_size)
    if found is None:
        return False
    own, total, *rest = found
    rounding = 1e-12 * abs(own)
    return bool(own > 0.0 and abs(own + group_size * total) <= rounding and np.abs(rest).max() <= rounding)
