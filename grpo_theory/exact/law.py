"""The first two moments of a gradient estimate, and what follows from them."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, cached_array
from grpo_theory.exact.alignment import efficiency_of
from grpo_theory.exact.score_moments import Share, second_moments
from grpo_theory.problem import LogitMap
from grpo_theory.user_text import summary_table
from grpo_theory.validation import as_real_array, check_shape

if TYPE_CHECKING:
    import pandas as pd


class NotEnumerableError(ValueError):
    """Raised when an estimator's exact moments cannot be enumerated; `gt.simulate_gradients` still works.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem, sizes = gt.gallery.problem("sequence-shared"), {"batch_size": 8, "group_size": 4}
    >>> try:
    ...     gt.gradient_mse(problem, problem.theta, "dapo", **sizes)
    ... except gt.NotEnumerableError:
    ...     found = gt.simulate_gradients(problem, problem.theta, "dapo", **sizes, replications=256, rng=0)
    >>> found.mse.shape
    (1,)
    """


@dataclass(frozen=True, eq=False)
class GradientLaw:
    """First two moments of an estimator's gradient at one theta, prompts drawn from f.

    Attributes
    ----------
    logit_map : LogitMap
        Phi, the derivatives of the logits at theta.
    batch_size, group_size : int
        B prompts, G responses each.
    true_gradient : ndarray, shape (d,)
    gradient_power : float
        Its squared length, and 0 where that is no more than rounding.
    true_covectors : ndarray, shape (M, D)
        c(x) with g(x) = Phi' c(x).
    prompt_weights : ndarray, shape (M,)
    mean_covectors : ndarray, shape (M, D)
        c(x) with E[one group's estimate | x] = Phi' c(x).
    powers : ndarray, shape (M,)
        E[||one group's estimate||^2 | x].
    shares
        What second moments are made from.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("linear")
    >>> law = gt.gradient_law(problem, problem.theta, "rloo", batch_size=8, group_size=4)
    >>> round(law.mse, 4), round(law.efficiency, 3), law.covariance().shape
    (0.006, 0.106, (5, 5))
    >>> law.variance_along([[1.0, 0.0, 0.0, 0.0, 0.0]]).round(4).tolist()
    [0.0008]
    >>> law.to_frame().shape
    (12, 4)
    """

    logit_map: LogitMap
    batch_size: int
    group_size: int
    true_gradient: Array
    gradient_power: float
    true_covectors: Array
    prompt_weights: Array
    mean_covectors: Array
    powers: Array
    shares: list[Share] = field(repr=False)

    def __repr__(self) -> str:
        sizes = f"batch_size={self.batch_size}, group_size={self.group_size}"
        return f"GradientLaw({sizes}, parameters={len(self.true_gradient)}, mse={self.mse:.4g})"

    def summary(self) -> str:
        """Return a table to be printed: sizes, the gradient's length, the estimate's error and its parts, efficiency and cosine.

        The efficiency is left out where the gradient is 0.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> problem = gt.gallery.problem("tabular")
        >>> print(gt.gradient_law(problem, problem.theta, "rloo", batch_size=32, group_size=8).summary().splitlines()[6])
        mean squared error          0.0007772
        """
        rows: list[tuple[str, object]] = [
            ("batch size B", self.batch_size),
            ("group size G", self.group_size),
            ("parameters", len(self.true_gradient)),
            ("length of the true gradient", math.sqrt(self.gradient_power)),
            ("mean squared error", self.mse),
            ("of it variance (trace)", self.trace),
            ("of it squared bias", float(self.bias @ self.bias)),
            ("cosine of mean and gradient", self.cosine),
        ]
        if self.gradient_power:
            rows.append(("efficiency", self.efficiency))
        return summary_table("Exact law of a gradient estimate", rows)

    @cached_array
    def second_moments(self) -> Array:
        """A(x) with E[one group's estimate times its transpose | x] = Phi' A(x) Phi, shape (M, D, D)."""
        return second_moments(self.shares, self.logit_map) / self.group_size**2

    @property
    def mean(self) -> Array:
        """The expected estimate, shape (d,)."""
        return self.logit_map.adjoint(self.prompt_weights[:, None] * self.mean_covectors)

    @property
    def bias(self) -> Array:
        """The expected estimate less the true gradient, shape (d,)."""
        return self.mean - self.true_gradient

    @property
    def prompt_traces(self) -> Array:
        """Trace of the covariance of one group's estimate given the prompt, shape (M,)."""
        return self.powers - self._squared_norms(self.mean_covectors)

    @property
    def trace(self) -> float:
        """Trace of the covariance of the batch's estimate."""
        mean = self.mean
        return float(self.prompt_weights @ self.powers - mean @ mean) / self.batch_size

    @property
    def power(self) -> float:
        """E||estimate||^2 of the batch's estimate."""
        mean = self.mean
        return self.trace + float(mean @ mean)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between the expected estimate and the true gradient; NaN if one of them is 0."""
        lengths = np.linalg.norm(self.mean) * np.linalg.norm(self.true_gradient)
        return float(self.mean @ self.true_gradient / lengths) if lengths > 0.0 else float("nan")

    @property
    def efficiency(self) -> float:
        """(g . E ghat)^2/(||g||^2 E||ghat||^2), between 0 and 1, see `gt.efficiency`; a ValueError where the gradient is 0."""
        return float(efficiency_of(self.true_gradient @ self.mean, self.gradient_power, self.power))

    @property
    def mse(self) -> float:
        """E||estimate - true gradient||^2: trace of the covariance plus squared bias."""
        return self.trace + float(self.bias @ self.bias)

    @property
    def prompt_mses(self) -> Array:
        """E||one group's estimate - g(x)||^2 given the prompt, shape (M,)."""
        return self.prompt_traces + self._squared_norms(self.mean_covectors - self.true_covectors)

    @property
    def prompt_mse(self) -> float:
        """Mean over prompts of one group's squared error about its prompt's gradient g(x)."""
        return float(self.prompt_weights @ self.prompt_mses)

    def to_frame(self) -> "pd.DataFrame":
        """Return a DataFrame with one row per prompt: its weight, and one group's trace of the covariance and squared error."""
        import pandas as pd  # slow to import, and not always wanted

        columns = {
            "prompt": np.arange(len(self.prompt_weights)),
            "weight": self.prompt_weights,
            "trace": self.prompt_traces,
            "mse": self.prompt_mses,
        }
        return pd.DataFrame(columns)

    def covariance(self) -> Array:
        """Return the covariance of the batch's estimate, shape (d, d)."""
        second = self.logit_map.congruence(self.prompt_weights[:, None, None] * self.second_moments)
        return (second - np.outer(self.mean, self.mean)) / self.batch_size

    def variance_along(self, directions: ArrayLike) -> Array:
        """Return the variance of <v, estimate> for each direction v, shape (J,), for directions of shape (J, d)."""
        directions = as_real_array("directions", directions, 2)
        check_shape("directions", directions, (len(directions), self.logit_map.dimension), "(J, d)")
        along = self.logit_map.logits(directions)
        second = np.einsum("m,jmk,mkl,jml->j", self.prompt_weights, along, self.second_moments, along, optimize=True)
        return (second - (directions @ self.mean) ** 2) / self.batch_size

    def _squared_norms(self, covectors: Array) -> Array:
        return self.logit_map.squared_norms(covectors[:, None])[:, 0]
