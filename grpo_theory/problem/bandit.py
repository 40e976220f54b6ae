"""Contextual bandits: prompts, responses, and a reward law of finite support."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.validation import as_count, as_distribution, as_real_array, check_shape, check_within

LARGEST_REWARD = 1e60
"""Fourth powers of rewards, which errors of squares hold, are numbers up to it."""


class Bandit:
    """A contextual bandit: M prompts, K responses per prompt, rewards on finitely many values.

    Parameters
    ----------
    success : array_like, shape (M, K)
        Probability of reward 1 (else 0) of each response to each prompt, in [0, 1].
    prompt_weights : array_like, shape (M,), optional
        Probabilities f of the prompts; uniform if omitted.

    Attributes
    ----------
    values : ndarray, shape (L,)
        The reward values.
    probabilities : ndarray, shape (M, K, L)
        Probability of each value, given prompt and response.
    prompt_weights : ndarray, shape (M,)
        Probabilities of the prompts.

    Raises
    ------
    ValueError
        If an entry is not finite, a probability lies outside [0, 1] or does not sum to one, or a shape does not fit.

    See Also
    --------
    Bandit.from_law : rewards on any finite set of values.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> bandit = gt.Bandit([[0.9, 0.2], [0.4, 0.4]], prompt_weights=[0.75, 0.25])
    >>> bandit.values.tolist(), bandit.probabilities.shape
    ([0.0, 1.0], (2, 2, 2))
    >>> bandit.at_prompt(1).prompt_weights.tolist()
    [0.0, 1.0]
    """

    values: Array
    probabilities: Array
    prompt_weights: Array

    def __init__(self, success: ArrayLike, prompt_weights: ArrayLike | None = None) -> None:
        success = as_real_array("success", success, 2)
        try:
            check_within("success", success, 0.0, 1.0)
        except ValueError as error:
            raise ValueError(
                f"{error}: these are probabilities of reward 1; other rewards have gt.Bandit.from_law(values, probabilities)"
            ) from None
        self._set([0.0, 1.0], np.stack([1.0 - success, success], axis=-1), prompt_weights)

    @classmethod
    def from_law(cls, values: ArrayLike, probabilities: ArrayLike, prompt_weights: ArrayLike | None = None) -> Self:
        """Make a bandit whose rewards take any finite set of values.

        Parameters
        ----------
        values : array_like, shape (L,)
            Distinct reward values, within +-1e60; format plus accuracy, for instance, is (0, 1, 2).
        probabilities : array_like, shape (M, K, L)
            Probability of each value, given prompt and response. The sum along the last axis is one, within the precision of the
            array's type. If the type is shorter than float64, the array is then divided by that sum.
        prompt_weights : array_like, shape (M,), optional
            Probabilities of the prompts; uniform if omitted.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> graded = gt.Bandit.from_law([0.0, 1.0, 2.0], [[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]])
        >>> gt.moments(gt.Problem(graded, gt.TabularSoftmax(1, 2)), [0.0, 0.0]).value.round(6).tolist()
        [1.2]
        """
        bandit = cls.__new__(cls)
        bandit._set(values, probabilities, prompt_weights)
        return bandit

    def _set(self, values: ArrayLike, probabilities: ArrayLike, prompt_weights: ArrayLike | None) -> None:
        self.values = as_reward_values(values)
        self.probabilities = as_distribution("probabilities", probabilities, 3)
        n_prompts, n_responses, _ = self.probabilities.shape
        check_shape("probabilities", self.probabilities, (n_prompts, n_responses, self.values.size), "(M, K, L)")
        if prompt_weights is None:
            self.prompt_weights = np.full(n_prompts, 1.0 / n_prompts)
        else:
            self.prompt_weights = as_distribution("prompt_weights", prompt_weights, 1)
            check_shape("prompt_weights", self.prompt_weights, (n_prompts,), "(M,), one for each prompt")
        for array in (self.values, self.probabilities, self.prompt_weights):
            array.setflags(write=False)

    @property
    def n_prompts(self) -> int:
        """The number of prompts M."""
        return self.probabilities.shape[0]

    @property
    def n_responses(self) -> int:
        """The number of responses K to each prompt."""
        return self.probabilities.shape[1]

    @property
    def mean_reward(self) -> Array:
        """E[Z | prompt, response], shape (M, K)."""
        return self.probabilities @ self.values

    def at_prompt(self, prompt: int) -> Self:
        """Restrict the bandit to one prompt, so that its gradient is g(x) instead of E g(X)."""
        return type(self).from_law(self.values, self.probabilities, self._all_at(prompt))

    def _all_at(self, prompt: int) -> Array:
        """Return the weights (M,) with which every draw is from one prompt; raise if there is no such prompt."""
        prompt = as_count("prompt", prompt, 0)
        if prompt >= self.n_prompts:
            raise ValueError(f"prompt must be below the number of prompts {self.n_prompts}, got {prompt}")
        weights = np.zeros(self.n_prompts)
        weights[prompt] = 1.0
        return weights

    def __repr__(self) -> str:
        return f"Bandit(M={self.n_prompts}, K={self.n_responses}, values={self.values.tolist()})"


def as_reward_values(values: ArrayLike) -> Array:
    """Return distinct reward values, within +-1e60, as an array (L,)."""
    array = as_real_array("values", values, 1)
    if np.unique(array).size != array.size:
        raise ValueError(f"values must be distinct, got {array.tolist()}")
    check_within("values", array, -LARGEST_REWARD, LARGEST_REWARD)
    return array
