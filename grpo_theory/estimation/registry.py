"""Estimators of the policy gradient: made of a kernel or composed of parts, and the registry of those that have names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grpo_theory.estimation import parts
from grpo_theory.estimation.advantage import Advantage, Memory, try_kernel, try_on_rewards
from grpo_theory.estimation.kernel import FIELDS, PROMPT_FIELDS, check_arguments, fields_read, read_only_batch, remember_text
from grpo_theory.problem import KL, Paths
from grpo_theory.validation import Array, Integers, as_count, as_real_array, check_name, check_shape

_ONE_TOKEN = np.ones(1, dtype=np.int64)
POSITIVE, NEGATIVE = 0, 1
"""Indices of the signs of an advantage in a table of gains."""


@dataclass(frozen=True, eq=False)
class Estimator:
    """An estimator of the policy gradient: (1/BG) sum over responses of A u + v.

    A is the advantage that the kernel gives a response. The sum of its tokens' logit gradients, weighted by importance ratio,
    clip and aggregation, is u. The gradient of a KL term in the loss is v.

    Attributes
    ----------
    name : str
    advantage : Advantage
    ratio : Ratio
    clip : Clip
    aggregation : Aggregation
    kl : KLTerm
        How the objective's penalty, if the problem has one, enters the estimate.
    source : str
        Formula and source, in a line; the kernel's own if empty.
    mismatch : Mismatch
        The ratio of the policy at the start of the update over the one that sampled, where these differ.
    credit : Credit
        What tokens get besides the advantage of their response.

    Examples
    --------
    >>> import numpy as np, grpo_theory as gt
    >>> grpo = gt.estimators()["grpo"]
    >>> grpo.name, dict(grpo.advantage.parameters), grpo.couples_groups
    ('grpo', {'epsilon': 0.0001}, False)
    >>> milder = grpo.with_parameters(epsilon=0.1)
    >>> milder.name
    'grpo(epsilon=0.1)'
    >>> milder.check_group_size(4), milder.check_defined(4, np.array([0.0, 1.0]))  # each raises if it is not defined
    (None, None)
    >>> gt.estimators()["dapo"].at_lengths(np.array([5, 5])).aggregation.name  # responses of one length
    'own length'
    """

    name: str
    advantage: Advantage
    ratio: parts.Ratio = parts.RATIOS["none"]
    clip: parts.Clip = parts.CLIPS["none"]
    aggregation: parts.Aggregation = parts.AGGREGATIONS["sum"]
    kl: parts.KLTerm = parts.KL_TERMS["k1 in reward"]
    source: str = ""
    mismatch: parts.Mismatch = parts.MISMATCHES["none"]
    credit: parts.Credit = parts.CREDITS["none"]

    def __repr__(self) -> str:
        return f"Estimator({self.name!r}, {self.description})"

    @property
    def couples_groups(self) -> bool:
        """Whether a group's estimate depends on other groups of the batch; exact theory is then not available."""
        return self.advantage.couples_groups or self.aggregation.pool == "batch"

    @property
    def reads(self) -> frozenset[str]:
        """The fields of the batch on which a group's advantages, and their weight in the batch, depend."""
        return self.advantage.reads | ({"lengths"} if self.aggregation.pool else frozenset())

    def at_lengths(self, lengths: Integers) -> Estimator:
        """Return the same estimator for responses of these lengths (K,): of one length, no tokens need be counted up.

        A mean over the tokens of a group or of a batch is then the mean over each response's own.
        """
        if self.aggregation.pool and lengths.min() == lengths.max():
            return replace(self, aggregation=parts.AGGREGATIONS["own length"])
        return self

    @property
    def description(self) -> str:
        """Formula and source, in a line."""
        return self.source or self.advantage.description

    def with_parameters(self, **parameters: float) -> Estimator:
        """Return the estimator with other kernel parameters, such as epsilon, under a name that states them.

        The registry is left as it is.
        """
        advantage = self.advantage.with_parameters(parameters)
        name = self.name.partition("(")[0] + advantage.name[advantage.name.index("(") :]
        return replace(self, name=name, advantage=advantage)

    def with_memory(self, start: ArrayLike) -> Estimator:
        """Return the estimator with another `Memory.start`, of every prompt (S,) or of each of M prompts (M, S).

        So exact laws and simulations are those given what is remembered.  The registry is left as it is.
        """
        if (known := self.advantage.memory) is None:
            raise ValueError(f"estimator {self.name!r} has no memory to start from")
        check_shape("start", (made := replace(known, start=start)).start, (len(made.start), known.start.shape[1]), "(M, S)")
        return replace(self, advantage=replace(self.advantage, memory=made))

    def remembered(self, n_prompts: int) -> Array:
        """Return what is remembered of so many prompts before the first rollout, shape (S, M); S is 0 without a memory."""
        if self.advantage.memory is None:
            return np.empty((0, n_prompts))
        start = self.advantage.memory.start
        if len(start) not in (1, n_prompts):
            raise ValueError(f"start must have 1 or {n_prompts} rows in the memory of {self.name!r}, got {len(start)}")
        return np.resize(start, (n_prompts, start.shape[1])).T

    def check_group_size(self, group_size: int) -> None:
        """Raise ValueError if the estimator is not defined for groups of this size, or its kernel fails on them."""
        if group_size < (least := self.advantage.minimum_group_size):
            raise ValueError(f"group_size must be at least {least} for estimator {self.name!r}, got {group_size}")
        try_kernel(self.advantage, group_size)

    def check_defined(self, group_size: int, rewards: Array, lengths: Integers = _ONE_TOKEN) -> None:
        """Raise if the estimator is not defined for groups of this size with these rewards and lengths, a problem's own."""
        self.check_group_size(group_size)
        read = lengths if "lengths" in self.advantage.reads else _ONE_TOKEN
        try_on_rewards(self.advantage, group_size, rewards.tobytes(), read.tobytes())


def gains_of(estimator: Estimator, paths: Paths, log_ratios: Array | None = None) -> Array:
    """Return the gains (K, 2, T, N) for N pairs of policies, given the logs of pi/pi_0 on the edges (D, N).

    Ratios and clips are functions of one response's tokens, for many side by side: here for all responses of a length.  Without
    logs they are those of a policy and itself, for N = 1.  All responses of a length have then the same, up to their shares.
    """
    shares, on_policy = estimator.aggregation.shares(paths.lengths), log_ratios is None
    gains = np.zeros((paths.n_responses, 2, paths.horizon, 1 if log_ratios is None else log_ratios.shape[1]))
    for alike, edges in paths.by_length:
        along = np.zeros((len(edges), 1)) if log_ratios is None else log_ratios[edges].reshape(len(edges), -1)
        # w_t = share_t clip(r_t, sign A) (docs/derivations.md, section 16).
        weights = gains_of_response(estimator, along, compiled=not on_policy).reshape(2, len(edges), -1, gains.shape[-1])
        gains[alike, :, : len(edges)] = (weights * shares[alike, None]).transpose(2, 0, 1, 3)
    return gains


def gains_of_response(estimator: Estimator, log_ratios: Array, *, compiled: bool = False) -> Array:
    """Return what ratio and clip make of one response's tokens, of either sign of the advantage, shape (2, T, N).

    The logs of the ratios, (T, N), are those of N pairs of policies.  For a few of them nothing need be compiled.
    """
    ratio, clip = (part.fill if compiled else part.function for part in (estimator.ratio, estimator.clip))
    ratios, weights = np.zeros(log_ratios.shape), np.zeros((2, *log_ratios.shape))
    with np.errstate(all="ignore"):
        ratio(log_ratios, len(log_ratios), ratios)
        for sign in range(2):
            clip(ratios, len(ratios), sign == POSITIVE, estimator.clip.widths, weights[sign])
    return weights


def check_penalty(kl: KL | None, estimator: Estimator) -> None:
    """Raise if the estimator has a KL term in the loss and the problem has no penalty."""
    if kl is None and estimator.kl.place == "loss":
        raise ValueError(f"problem must have a kl for the KL term {estimator.kl.name!r} of estimator {estimator.name!r}")


class Registry(Mapping[str, Estimator]):
    """Estimators by name, to be read: shown, it is their names."""

    def __init__(self, named: Mapping[str, Estimator]) -> None:
        self._named = named

    def __getitem__(self, name: str) -> Estimator:
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def __repr__(self) -> str:
        return fill(", ".join(self._named), 120)


_REGISTRY: dict[str, Estimator] = {}
SHIPPED: set[str] = set()
"""Names that mean what the package says they mean: nobody may replace them."""


def register(new: Estimator, *, overwrite: bool = False) -> Estimator:
    """Put an estimator into the registry, in the place of the same one, or with `overwrite` of any that the package has not."""
    known = _REGISTRY.get(new.name)
    if known is not None and (new.name in SHIPPED or not overwrite):
        kernels = [one.advantage.function for one in (known, new)]
        same = all(getattr(known, part).is_same(getattr(new, part)) for part in parts.PARTS)
        before, after = known.advantage.memory, new.advantage.memory
        remembers = after is None if before is None else after is not None and before.is_same(after)
        if not same or not remembers or not parts.is_same_function(*kernels):
            advice = "choose another name" if new.name in SHIPPED else "overwrite=True replaces it"
            raise ValueError(
                f"name must be new, but there is an estimator {new.name!r} already: {known.description.rstrip('.')}; {advice}"
            )
    _REGISTRY[new.name] = new
    return new


def estimators() -> Registry:
    """Return all registered estimators by name, in the order of registration; printed, they are their names.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> gt.estimators()["rloo"]
    Estimator('rloo', A = Z - mean of the group's other rewards: the GRPO-type estimator of arXiv 2603.01162.)
    """
    return Registry(_REGISTRY)


def find(estimator: str | Estimator, argument: str = "estimator") -> Estimator:
    """Look up an estimator by its name; an `Estimator` is returned as it is.

    Raises
    ------
    ValueError
        If no estimator has the name; the message lists names that are like it.

    Examples
    --------
    >>> from grpo_theory.estimation import find
    >>> find("rloo").name
    'rloo'
    >>> find("gpro")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    grpo_theory.validation.ArgumentError: estimator must be one of gspo, grpo, ... more, got 'gpro'
    """
    if isinstance(estimator, Estimator):
        return estimator
    if isinstance(estimator, list | tuple):
        raise TypeError(
            f"{argument} must be one name or Estimator, got {len(estimator)} in a {type(estimator).__name__}. "
            "Ask for each of them, as in [gt.efficiency(problem, theta, one, ...) for one in names]"
        )
    if not isinstance(estimator, str):
        raise TypeError(f"{argument} must be a registered name or an Estimator, got {estimator!r}")
    check_name(argument, estimator, _REGISTRY)
    return _REGISTRY[estimator]


def make_estimator(
    name: str,
    function: Callable,
    *,
    parameters: Mapping[str, float] | None = None,
    minimum_group_size: int = 1,
    couples_groups: bool = False,
    exchangeable: bool = False,
    memory: Memory | None = None,
    source: str = "",
) -> Estimator:
    """Make an estimator from an advantage kernel without registering it; the arguments are those of `estimator`.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> from grpo_theory.estimation import make_estimator
    >>> def halfway(batch, advantages):
    ...     for b in range(batch.rewards.shape[0]):
    ...         for g in range(batch.rewards.shape[1]):
    ...             advantages[b, g] = batch.rewards[b, g] - 0.5
    >>> mine = make_estimator("halfway_of_mine", halfway)
    >>> gt.advantages([[1.0, 0.0]], mine)[0].tolist(), "halfway_of_mine" in gt.estimators()
    ([0.5, -0.5], False)
    """
    _check_named(name)
    check_arguments(function)
    if not isinstance(memory, Memory | None):
        raise TypeError(f"memory must be a Memory(function, start), got {memory!r}")
    advantage = Advantage(
        name=name,
        function=function,
        parameters={} if parameters is None else parameters,
        minimum_group_size=as_count("minimum_group_size", minimum_group_size),
        couples_groups=couples_groups,
        reads=fields_read(function),
        exchangeable=exchangeable,
        memory=memory,
    )
    remember_text(function)
    return Estimator(name, advantage, source=source)


def estimator(
    name: str,
    *,
    parameters: Mapping[str, float] | None = None,
    minimum_group_size: int = 1,
    couples_groups: bool = False,
    exchangeable: bool = False,
    memory: Memory | None = None,
    source: str = "",
    overwrite: bool = False,
) -> Callable[[Callable], Estimator]:
    """Register an advantage kernel under a name; the decorated function becomes an `Estimator`.

    Parameters
    ----------
    name : str
        The name by which every function of the package accepts the estimator.
    parameters : Mapping[str, float], optional
        Names and default values of what the kernel finds in ``batch.parameters``.
    minimum_group_size : int, default 1
        The smallest G for which the advantages are defined; 2 for leave-one-out estimators.
    couples_groups : bool, default False
        Whether an advantage depends on other groups of the batch.  If not, the kernel may be given the groups of many batches
        at once.
    exchangeable : bool, default False
        Whether the kernel treats responses alike, wherever they stand in the group.  Then simulations look its advantages up in a
        table, which is much faster.
    memory : Memory, optional
        What the kernel finds in ``batch.memory``, and how rewards change it from rollout to rollout.
    source : str, optional
        Formula and source, in a line; the first line of the kernel's docstring if omitted.
    overwrite : bool, default False
        Whether the kernel may replace another one of this name, as in a notebook.  The package's own are never replaced.
        Compositions that have its advantages keep those of before; compose them anew.

    Raises
    ------
    TypeError
        If the function is not a kernel.
    ValueError
        If another kernel has the name already, and is not to be or cannot be replaced.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> @gt.estimator("halfway")
    ... def halfway(batch, advantages):
    ...     for b in range(batch.rewards.shape[0]):
    ...         for g in range(batch.rewards.shape[1]):
    ...             advantages[b, g] = batch.rewards[b, g] - 0.5
    """
    _check_named(name)
    how: dict[str, Any] = {"parameters": parameters, "couples_groups": couples_groups, "exchangeable": exchangeable}
    how |= {"minimum_group_size": as_count("minimum_group_size", minimum_group_size), "memory": memory, "source": source}
    return lambda function: register(make_estimator(name, function, **how), overwrite=overwrite)


def compose(
    name: str,
    *,
    advantage: str | Estimator,
    ratio: str | parts.Ratio = "none",
    clip: str | parts.Clip = "none",
    aggregation: str | parts.Aggregation = "sum",
    kl: str | parts.KLTerm = "k1 in reward",
    mismatch: str | parts.Mismatch = "none",
    credit: str | parts.Credit = "none",
    source: str = "",
    overwrite: bool = False,
) -> Estimator:
    """Build an estimator from advantage, importance ratio, clip, aggregation, KL term and credits, and register it.

    A response with tokens t contributes sum_t (A + a_t) w_t c_t + v to the estimate. A is its advantage, a_t the credit of a
    token, and v the gradient of a KL term in the loss. The logit gradient c_t of the token is e_edge - (the probabilities at its
    prefix). The weight w_t is what clip and aggregation make of the importance ratio, times the bounded mismatch.

    Parameters
    ----------
    name : str
        The name by which every function of the package accepts the estimator.
    advantage : str or Estimator
        Whose advantages; "none" for 0.
    ratio : {"none", "token", "trajectory", "geometric"} or Ratio
        The importance ratio: probability under the current policy divided by that under the policy that sampled.
    clip : {"none", "two-sided", "upper only", "by sign", "cap", "cap at high", "clamp", "dual"} or Clip
        What happens to a ratio too far from 1. A name stands for widths of 0.2; for other widths give the object, as
        ``gt.estimation.CLIPS["by sign"].with_widths(0.2, 0.28)``. The ratio "none" is 1, which only "cap at high" changes, so
        a clip of it is most often a slip.
    aggregation : {"sum", "own length", "constant", "group tokens", "batch tokens"} or Aggregation
        How tokens are added up.
    kl : {"k1 in reward", "k2 in reward", "k3 in reward", "k1 in loss", "k2 in loss", "k3 in loss"} or KLTerm
        How the problem's penalty, if it has one, enters.
    mismatch : {"none", "token", "token truncated", "token masked", "response truncated", "response masked"} or Mismatch
        A second ratio, of the policy at the start of the update over the one that sampled. It has a bound of its own. It counts
        where `gt.gradient_law` is told both policies, and is 1 elsewhere.
    credit : {"none", "values", "gae", "vine"} or Credit
        What each token gets besides, in exact laws, mean paths and simulations.
    source : str, optional
        Formula and source, in a line.
    overwrite : bool, default False
        Whether it may take the place of another one of this name, which is not the package's.

    Raises
    ------
    ValueError
        If a part is unknown (the message lists the known ones), or another estimator has the name.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> ppo = gt.compose("ppo_like", advantage="rloo", ratio="token", clip="by sign", aggregation="own length")
    >>> tis = gt.compose("ppo_like_tis", advantage="rloo", ratio="token", clip="by sign", mismatch="token truncated")
    >>> tis.mismatch.bound.high  # a ratio is cut at 1 + high
    1.0
    """
    _check_named(name)
    given = {"ratio": ratio, "clip": clip, "aggregation": aggregation, "kl": kl, "mismatch": mismatch, "credit": credit}
    found = {argument: parts.find_part(argument, value) for argument, value in given.items()}
    nothing = isinstance(advantage, str) and advantage == "none"
    kernel = (NOTHING if nothing else find(advantage, "advantage")).advantage
    return register(Estimator(name, kernel, **found, source=source), overwrite=overwrite)


def apart(name: str, *, advantage: str | Estimator, rewards: ArrayLike, weights: ArrayLike | None = None) -> Estimator:
    """Make an estimator that normalises several rewards one by one and adds up their advantages.

    It is not registered, and does not travel to other processes: make it there.

    What a problem calls the reward is here the number of a row, and the row has the rewards.  `Objective.mean_of` is what
    they are worth together.

    Parameters
    ----------
    name : str
    advantage : str or Estimator
        What gives each reward its advantages; "grpo" makes it GDPO (arXiv 2601.05242, equations 4 and 7), before that whitens
        the batch (equation 6).
    rewards : array_like, shape (L, R)
        The R rewards of a response whose reward in the problem is l = 0, ..., L - 1.  One column of their sums, (L, 1), adds up
        first and normalises the sum.
    weights : array_like, shape (R,), optional
        What each reward's advantage is multiplied by; 1 if omitted.

    Raises
    ------
    ValueError
        If the shapes do not fit, or the advantages are those of an oracle, which knows one reward.

    Examples
    --------
    Two rewards of 0 or 1.  Their sum is 1 in two ways, which GRPO cannot tell apart:

    >>> import numpy as np, grpo_theory as gt
    >>> rewards = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> gdpo = gt.estimation.apart("gdpo_example", advantage="grpo", rewards=rewards)
    >>> gt.advantages([[0, 0, 1, 2]], gdpo)[0].round(2).tolist()
    [-1.0, -1.0, 1.0, 1.0]
    >>> bandit = gt.Bandit.from_law(range(4), [[[0.4, 0.1, 0.3, 0.2], [0.1, 0.5, 0.1, 0.3]]])
    >>> problem = gt.Problem(bandit, gt.TabularSoftmax(1, 2), objective=gt.Objective.mean_of(rewards.sum(axis=1)))
    >>> round(gt.efficiency(problem, problem.theta, gdpo, batch_size=1, group_size=4), 3)
    0.201
    """
    _check_named(name)
    whole, table = find(advantage, "advantage"), as_real_array("rewards", rewards, 2)
    factors = np.ones(table.shape[1]) if weights is None else as_real_array("weights", weights, 1)
    check_shape("weights", factors, (table.shape[1],), "(R,), one for each column of rewards")
    if whole.advantage.memory or whole.advantage.reads & set(PROMPT_FIELDS):
        raise ValueError(f"advantage must not be an oracle's or have a memory, which know one reward; got that of {whole.name!r}")

    def kernel(batch, advantages):
        """A = sum_r weight_r A_r, A_r the advantage by the r-th reward alone: GDPO (arXiv 2601.05242)."""
        rows = np.clip(batch.rewards, 0.0, len(table) - 1.0).astype(np.int64)
        # A reward that is no row's number, as with a penalty in it, leaves NaN, which is refused.
        advantages[:] = np.where(rows == batch.rewards, 0.0, np.nan)
        for column, factor in zip(table.T, factors, strict=True):
            own = np.full(rows.shape, np.nan)
            whole.advantage.kernel(read_only_batch([column[rows], *batch[1 : len(FIELDS)]], batch.parameters), own)
            advantages += factor * own

    kernel.py_func = kernel  # type: ignore[attr-defined]  # it calls what is compiled, and is not compiled itself
    return replace(whole, name=name, advantage=replace(whole.advantage, name=name, function=kernel), source="")


def no_advantage(batch, advantages):
    """A = 0: tokens have their own credits."""
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = 0.0


def _check_named(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")


NOTHING = make_estimator("none", no_advantage, exchangeable=True)
"""What `compose` takes for the advantage "none"."""
