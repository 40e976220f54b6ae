"""Which baseline an estimator of the registry has: the leave-one-out mean, none, or another whose error is not planned."""

import numpy as np

from grpo_theory.estimation import Estimator
from grpo_theory.estimation.advantage import affine_coefficients
from grpo_theory.estimation.parts import constant_length, whole


def baseline_of(estimator: Estimator, group_size: int) -> str | None:
    """Return the baseline of an estimator whose estimate on policy is the gradient's, times a constant above 0; None for others.

    It is the leave-one-out mean if the advantage is a constant times Z - group mean, and none if it is a constant times Z. Both
    are decided on symbols and so hold for all rewards (`affine_coefficients`). The aggregation must weigh all tokens alike,
    whatever the lengths. On policy ratios are 1 and clips idle.
    """
    if weighs_by_length(estimator):
        return None
    coefficients = affine_coefficients(estimator.advantage, group_size)
    if coefficients is None:
        return None
    own, total, *rest = coefficients
    rounding = 1e-12 * abs(own)
    if not own > 0.0 or np.abs(rest).max() > rounding:
        return None
    if abs(own + group_size * total) <= rounding:
        return "leave-one-out mean"
    return "none" if abs(total) <= rounding else None


def weighs_by_length(estimator: Estimator) -> bool:
    """Return whether the weight of a token depends on the lengths of responses, as in a mean over tokens."""
    aggregation = estimator.aggregation
    return bool(aggregation.pool) or aggregation.function not in (whole, constant_length)
