"""Rewards that depend on the state in which a response ends."""

from typing import NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array
from grpo_theory.problem.bandit import Bandit, as_reward_values
from grpo_theory.validation import as_distribution, as_real_array, check_shape, check_within


class NotListedError(ValueError):
    """Raised when a `TokenChain` is asked for something that needs a list of its responses, such as their number or scores.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.problem import NotListedError
    >>> chain = gt.TokenChain([[0, 1], [1, 0]], horizon=1024)
    >>> try:
    ...     chain.probabilities([0.0, 0.0, 0.0, 0.0])
    ... except NotListedError:
    ...     print(chain.token_log_probabilities([0.0, 0.0, 0.0, 0.0]).shape)
    (2, 2)
    """


class StateRewards(Bandit):
    """Rewards of a `TokenChain`: their law depends only on the state in which the response ends.

    Parameters
    ----------
    success : array_like, shape (S,)
        Probability of reward 1 (else 0) of a response that ends in each state, in [0, 1].
    prompt_weights : array_like, shape (M,), optional
        Probabilities f of the prompts, which are the chain's starts; uniform if omitted.

    Attributes
    ----------
    values : ndarray, shape (L,)
        The reward values.
    state_probabilities : ndarray, shape (S, L)
        Probability of each value, given the state in which the response ends.
    prompt_weights : ndarray, shape (M,)

    Raises
    ------
    ValueError
        If an entry is not finite, a probability lies outside [0, 1] or does not sum to one, or a shape does not fit.

    See Also
    --------
    StateRewards.from_law : rewards on any finite set of values.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> rewards = gt.StateRewards([0.0, 0.5, 1.0])
    >>> rewards.state_probabilities.tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> rewards.for_starts(2).prompt_weights.tolist(), rewards.for_starts(2).at_prompt(1).prompt_weights.tolist()
    ([0.5, 0.5], [0.0, 1.0])
    """

    state_probabilities: Array

    def __init__(self, success: ArrayLike, prompt_weights: ArrayLike | None = None) -> None:
        success = as_real_array("success", success, 1)
        check_within("success", success, 0.0, 1.0)
        self._set_states([0.0, 1.0], np.stack([1.0 - success, success], axis=-1), prompt_weights)

    @classmethod
    def from_law(cls, values: ArrayLike, probabilities: ArrayLike, prompt_weights: ArrayLike | None = None) -> Self:
        """Make rewards that take any finite set of values.

        Parameters
        ----------
        values : array_like, shape (L,)
            Distinct reward values, within +-1e60.
        probabilities : array_like, shape (S, L)
            Probability of each value, given the state in which the response ends; sums to one along the last axis.
        prompt_weights : array_like, shape (M,), optional
            Probabilities of the prompts; uniform if omitted.

        Examples
        --------
        >>> import grpo_theory as gt
        >>> gt.StateRewards.from_law([-1.0, 0.0, 1.0], [[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]]).values.tolist()
        [-1.0, 0.0, 1.0]
        """
        rewards = cls.__new__(cls)
        rewards._set_states(values, probabilities, prompt_weights)
        return rewards

    def _set_states(self, values: ArrayLike, probabilities: ArrayLike, prompt_weights: ArrayLike | None) -> None:
        self.values = as_reward_values(values)
        self.state_probabilities = as_distribution("probabilities", probabilities, 2)
        check_shape("probabilities", self.state_probabilities, (self.n_states, self.values.size), "(S, L)")
        # Until a problem says how many starts there are, no weights stand for equal ones.
        self.prompt_weights = np.empty(0) if prompt_weights is None else as_distribution("prompt_weights", prompt_weights, 1)
        for array in (self.values, self.state_probabilities, self.prompt_weights):
            array.setflags(write=False)

    @property
    def n_states(self) -> int:
        """The number of states S."""
        return self.state_probabilities.shape[0]

    @property
    def n_prompts(self) -> int:
        """The number of prompts M; 0 if no weights were given, and the chain's starts are equally likely."""
        return self.prompt_weights.size

    @property
    def n_responses(self) -> int:
        """Responses are not listed; raises `NotListedError`."""
        return not_listed("the number of responses")

    @property
    def probabilities(self) -> Array:  # type: ignore[override]
        """Responses are not listed; raises `NotListedError`."""
        return not_listed("the reward law of every response")

    @property
    def mean_state_reward(self) -> Array:
        """E[Z | the state in which the response ends], shape (S,)."""
        return self.state_probabilities @ self.values

    def for_starts(self, n_starts: int) -> "StateRewards":
        """Return the same rewards with weights for so many prompts; raise if there are weights for another number."""
        if self.prompt_weights.size == 0:
            return self.from_law(self.values, self.state_probabilities, np.full(n_starts, 1.0 / n_starts))
        check_shape("prompt_weights", self.prompt_weights, (n_starts,), "(M,), one for each of the chain's starts")
        return self

    def at_prompt(self, prompt: int) -> Self:
        """Restrict the rewards to one prompt, so that the gradient is g(x) instead of E g(X)."""
        if self.n_prompts == 0:
            raise ValueError("prompt is not known before a chain says how many there are: use at_prompt of the Problem")
        return self.from_law(self.values, self.state_probabilities, self._all_at(prompt))

    def __repr__(self) -> str:
        return f"StateRewards(S={self.n_states}, values={self.values.tolist()})"


def not_listed(what: str) -> NoReturn:
    """Raise: a chain's responses are not listed."""
    raise NotListedError(
        f"{what} is not known of a TokenChain, whose responses are not listed. Without a list there are moments, objective, "
        "gradient_law, efficiency, group_size_law, simulate_gradients and simulate_training. Use problem.listed() for the same "
        "problem as a tree of at most 4,096 responses"
    )
