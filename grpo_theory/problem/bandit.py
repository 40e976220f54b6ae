"""What is rewarded: contextual bandits, the states of chains, and a penalty for leaving a reference policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.arrays import Array, read_only
from grpo_theory.validation import as_count, as_distribution, as_positive, as_real_array, check_shape, check_within

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
    _success_axes = 2

    def __init__(self, success: ArrayLike, prompt_weights: ArrayLike | None = None) -> None:
        success = as_real_array("success", success, self._success_axes)
        try:
            check_within("success", success, 0.0, 1.0)
        except ValueError as error:
            law = f"gt.{type(self).__name__}.from_law(values, probabilities)"
            raise ValueError(f"{error}: these are probabilities of reward 1; other rewards have {law}") from None
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
        read_only((self.values, self.probabilities, self.prompt_weights))

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


@dataclass(frozen=True, eq=False)
class KL:
    """The penalty in the objective E[Z] - strength * E KL(pi(.|X) || reference(.|X)).

    The penalty is part of the reward, unless an estimator's composition puts it into the loss.  The reward of response k to
    prompt m becomes Z - strength * log(pi(k|m) / reference(k|m)).  The score-function gradient with that reward is the gradient
    of the objective, because E[W] = 0.

    Parameters
    ----------
    strength : float
        Above 0, in units of reward per nat.
    reference : array_like, shape (M, K)
        The reference policy's probabilities of the responses, all positive.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> penalty = gt.KL(0.1, [[0.5, 0.5]])
    >>> problem = gt.Problem(gt.Bandit([[0.9, 0.4]]), gt.TabularSoftmax(1, 2), kl=penalty)
    >>> round(float(gt.objective(problem, [1.0, 0.0])), 4)
    0.7544
    >>> penalty.check_reference((1, 2)).tolist()
    [[0.5, 0.5]]
    """

    strength: float
    reference: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", as_positive("strength", self.strength))
        reference = as_distribution("reference", self.reference, 2)
        if reference.min() <= 0.0:
            raise ValueError(f"reference must be positive everywhere, got {reference.min():g}")
        object.__setattr__(self, "reference", read_only(reference))

    def check_reference(self, shape: tuple[int, ...]) -> Array:
        """Return the reference, shape (M, K); raise unless `shape` is that."""
        reference = np.asarray(self.reference)
        check_shape("reference", reference, shape, "(M, K), the policy's prompts and responses")
        return reference


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
    StateRewards.from_law : rewards on any finite set of values; the probabilities have shape (S, L).

    Examples
    --------
    >>> import grpo_theory as gt
    >>> rewards = gt.StateRewards([0.0, 0.5, 1.0])
    >>> rewards.state_probabilities.tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> rewards.for_starts(2).prompt_weights.tolist(), rewards.for_starts(2).at_prompt(1).prompt_weights.tolist()
    ([0.5, 0.5], [0.0, 1.0])
    >>> gt.StateRewards.from_law([-1.0, 0.0, 1.0], [[0.2, 0.8, 0.0], [0.0, 0.0, 1.0]]).values.tolist()
    [-1.0, 0.0, 1.0]
    """

    state_probabilities: Array
    _success_axes = 1

    def _set(self, values: ArrayLike, probabilities: ArrayLike, prompt_weights: ArrayLike | None) -> None:
        self.values = as_reward_values(values)
        self.state_probabilities = as_distribution("probabilities", probabilities, 2)
        check_shape("probabilities", self.state_probabilities, (self.n_states, self.values.size), "(S, L)")
        # Until a problem says how many starts there are, no weights stand for equal ones.
        self.prompt_weights = np.empty(0) if prompt_weights is None else as_distribution("prompt_weights", prompt_weights, 1)
        read_only((self.values, self.state_probabilities, self.prompt_weights))

    @property
    def n_states(self) -> int:
        """The number of states S."""
        return self.state_probabilities.shape[0]

    @property
    def n_prompts(self) -> int:
        """The number of prompts M; 0 if no weights were given, and the chain's starts are equally likely."""
        return self.prompt_weights.size

    @property
    def probabilities(self) -> Array:  # type: ignore[override]
        """Responses are not listed; raises `NotListedError`."""
        return not_listed("the reward law of every response")

    def for_starts(self, n_starts: int) -> StateRewards:
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
