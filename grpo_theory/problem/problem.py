"""Problems: a bandit, a policy, and a KL penalty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.problem.chain import StateRewards, TokenChain, listed_chain
from grpo_theory.problem.chain_point import ChainPoint
from grpo_theory.problem.point import Moments, Objective, Point
from grpo_theory.problem.policy import KL, Bandit, Policy
from grpo_theory.validation import Array, cached_array, read_only, typed


@dataclass(frozen=True, eq=False, init=False)
class Problem:
    """A bandit, a policy, the penalty in the objective if there is one, and the parameters at which they are studied.

    Parameters
    ----------
    bandit : Bandit
    policy : Policy
        It must have the bandit's numbers of prompts and responses.
    kl : KL, optional
        The objective is E[Z] - strength * E KL(pi || reference).
    theta : array_like, shape (d,), optional
        Where the problem is studied, or where a search for its maximiser or a training run starts. Zeros if omitted; a policy
        with learned features refuses zeros.
    name, title : str, default ""
        The name is for tables, and the title for figures.
    objective : Objective, optional
        What is climbed in place of each prompt's mean reward, as ``gt.Objective.best_of(4)``.  Objective, gradient, Hessian,
        maximiser, and bias, error and efficiency of estimates are then about it.  Rewards stay what they are.

    Raises
    ------
    TypeError
        If a part is of another kind.
    ValueError
        If the parts' shapes do not fit.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.Problem(gt.Bandit([[0.3, 0.8], [0.5, 0.1]]), gt.TabularSoftmax(2, 2), name="mine")
    >>> problem.theta.tolist(), problem.at(problem.theta).value.round(3).tolist()
    ([0.0, 0.0, 0.0, 0.0], [0.55, 0.3])
    >>> gt.objective(problem.at_prompt(0), problem.theta).round(3).item()
    0.55
    >>> problem.listed() is problem  # only the responses of a `TokenChain` are not listed already
    True
    """

    bandit: Bandit
    policy: Policy
    kl: KL | None
    theta: Array
    name: str
    title: str
    objective: Objective | None

    def __init__(
        self,
        bandit: Bandit,
        policy: Policy,
        kl: KL | None = None,
        theta: ArrayLike | None = None,
        name: str = "",
        title: str = "",
        objective: Objective | None = None,
    ) -> None:
        if not isinstance(bandit, Bandit):
            raise TypeError(f"bandit must be a Bandit, got {bandit!r}")
        if not isinstance(policy, Policy):
            raise TypeError(f"policy must be a Policy, got {policy!r}")
        if kl is not None and not isinstance(kl, KL):
            raise TypeError(f"kl must be a KL(strength, reference) or None, got {kl!r}")
        if objective is not None and not isinstance(objective, Objective):
            raise TypeError(f"objective must be an Objective or None, got {objective!r}")
        if isinstance(bandit, StateRewards) or isinstance(policy, TokenChain):
            if not isinstance(bandit, StateRewards):
                raise TypeError(f"bandit must be StateRewards(success) for a TokenChain, got {bandit!r}")
            if not isinstance(policy, TokenChain):
                raise TypeError(f"policy must be a TokenChain for StateRewards, got {policy!r}")
            if kl is not None:
                raise ValueError(
                    "kl must be None for a TokenChain. With a penalty the reward depends on every token, and not on the state in "
                    "which the response ends. A TokenTree of up to 4,096 responses can have one"
                )
            if bandit.n_states != policy.n_states:
                told = f"success must have one entry for each of the chain's {policy.n_states} states, got {bandit.n_states}"
                raise ValueError(told)
            bandit = bandit.for_starts(policy.n_prompts)
        else:
            shape = bandit.n_prompts, bandit.n_responses
            if (policy.n_prompts, policy.n_responses) != shape:
                raise ValueError(f"policy must have the bandit's (M, K) = {shape}, got {(policy.n_prompts, policy.n_responses)}")
            if kl is not None:
                kl.check_reference(shape)
        if objective is not None:
            objective.check(bandit.values)
        start = read_only(policy.check_theta(policy.starting_point() if theta is None else theta))
        vars(self).update(bandit=bandit, policy=policy, kl=kl, theta=start, name=name, title=title, objective=objective)

    def parameters(self, theta: ArrayLike | None, name: str = "theta") -> Array:
        """Return parameters as a finite array (d,): the problem's own for None."""
        return self.policy.check_theta(self.theta if theta is None else theta, name)

    def at(self, theta: ArrayLike | None = None) -> Point:
        """Return the problem at the parameters theta (d,), its own if omitted; what is computed there is kept."""
        kind: type[Point] = ChainPoint if isinstance(self.policy, TokenChain) else Point
        theta = read_only(self.parameters(theta))
        return kind(self.bandit, self.policy, self.kl, self.log_reference, theta, self.objective)

    @cached_array
    def log_reference(self) -> Array | None:
        """Log probability of each token given its prefix under the penalty's reference, shape (M, D), if there is a penalty."""
        return None if self.kl is None else self.policy.paths.conditionals(np.log(self.kl.reference))

    def at_prompt(self, prompt: int) -> Self:
        """Restrict the problem to one prompt, so that its gradient is g(x) instead of E g(X)."""
        return replace(self, bandit=self.bandit.at_prompt(prompt))

    def listed(self) -> Problem:
        """Convert a problem on a `TokenChain` to one whose responses are listed; other problems are returned unchanged.

        Raises
        ------
        ValueError
            If there are more than 4,096 responses, or other ones for another prompt.
        """
        if not isinstance(self.policy, TokenChain) or not isinstance(self.bandit, StateRewards):
            return self
        bandit, policy = listed_chain(self.policy, self.bandit)
        return Problem(bandit, policy, theta=self.theta, name=self.name, title=self.title, objective=self.objective)

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        penalty = f", kl strength {self.kl.strength:g}" if self.kl is not None else ""
        climbed = f", {self.objective!r}" if self.objective is not None else ""
        return f"Problem({name}{self.bandit!r}, {self.policy!r}{penalty}{climbed})"

    def check_climbs_mean(self, what: str) -> None:
        """Raise ValueError where `what`, a prediction about the mean reward, is asked of a problem that climbs something else."""
        if self.objective is not None:
            raise ValueError(f"problem must climb its mean reward for {what}, and has {self.objective!r}; leave objective out")


@typed
def moments(problem: Problem, theta: ArrayLike | None = None) -> Moments:
    """Return the exact moments of reward and score at theta (d,), the problem's own if omitted.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> problem = gt.gallery.problem("two-arms")
    >>> gt.moments(problem).value.round(3).tolist()
    [0.633]
    """
    return problem.at(theta).moments
