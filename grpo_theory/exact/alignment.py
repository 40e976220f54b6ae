"""How far an estimate points along the gradient, in numbers without a scale."""

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.validation import as_numbers


def efficiency_of(gain: ArrayLike, gradient_power: float, power: ArrayLike) -> Array:
    """Return (g . E ghat)^2/(||g||^2 E||ghat||^2) from g . E ghat, ||g||^2 and E||ghat||^2, shape (...); see `gt.efficiency`.

    Raises ValueError where ||g||^2 is 0.
    """
    if not gradient_power > 0.0:
        raise ValueError(
            "efficiency compares an estimate with the gradient, and the gradient is 0 at theta: "
            "no step gains anything to first order there. Choose a theta that is not stationary"
        )
    gain, power = as_numbers("gain", gain), as_numbers("power", power)
    lengths = np.sqrt(power) * np.sqrt(gradient_power)
    cosine = np.divide(gain, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
    return np.asarray(np.minimum(cosine**2, 1.0))
