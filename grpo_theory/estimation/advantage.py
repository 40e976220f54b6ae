"""Advantage kernels with their names, parameters and requirements: their trial, and whether they are affine in rewards."""

import keyword
import numbers
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from reprlib import repr as short
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from grpo_theory.estimation import kernel as contracts
from grpo_theory.estimation.code import plain_python
from grpo_theory.estimation.kernel import PROMPT_FIELDS, RESPONSE_FIELDS, Batch, compile_kernel, read_only_batch
from grpo_theory.estimation.parts import Part, is_same_function
from grpo_theory.user_text import printable
from grpo_theory.validation import Array, Integers, as_number, as_numbers, as_real_array, read_only


@dataclass(frozen=True, eq=False)
class Memory(Part):
    """What an estimator remembers of each prompt, S numbers, from rollout to rollout.

    All groups of a rollout read the memory from before it.  Then each group's rewards change the memory of its prompt, one group
    after another where a prompt has several.  Training runs carry it on, and laws of one update are given the start.

    Attributes
    ----------
    function : callable
        ``function(memory, rewards, parameters)`` turns what is remembered of a prompt, memory (S,), into the next, in place.  It
        is given the rewards (G,) of a group of the prompt, as the kernel sees them, and the estimator's parameters (P,).
    start : array_like, shape (S,) or (M, S)
        What is remembered before the first rollout, of every prompt or of each of M prompts.

    Examples
    --------
    A Beta law of the prompt's success, whose counts of failures and successes are discounted:

    >>> import grpo_theory as gt
    >>> def count(memory, rewards, parameters):
    ...     memory[:] *= parameters[0]
    ...     memory[1] += rewards.sum()
    ...     memory[0] += rewards.size - rewards.sum()
    >>> @gt.estimator("beta_example", parameters={"discount": 0.9}, memory=gt.Memory(count, [1.0, 1.0]))
    ... def beta(batch, advantages):
    ...     for b in range(batch.rewards.shape[0]):
    ...         advantages[b] = batch.rewards[b] - batch.memory[b, 1] / batch.memory[b].sum()
    >>> gt.advantages([[1.0, 0.0]], beta)[0].tolist(), gt.advantages([[1.0, 0.0]], beta.with_memory([1.0, 3.0]))[0].tolist()
    ([0.5, -0.5], [0.25, -0.75])
    """

    function: Callable
    start: Any

    def __post_init__(self) -> None:
        contracts.check_arguments(self.function, 3, contracts.REMEMBERS[1])
        object.__setattr__(self, "start", read_only(as_real_array("start", np.atleast_2d(as_numbers("start", self.start)), 2)))

    def is_same(self, other: Part) -> bool:
        """Whether both remember the same from the same start, though perhaps by a file that has been run again."""
        same_start = isinstance(other, Memory) and np.array_equal(self.start, other.start)
        return same_start and is_same_function(self.function, other.function)


@dataclass(frozen=True, eq=False)
class Advantage(Part):
    """An advantage kernel.

    Attributes
    ----------
    name : str
    function : callable
        The kernel as plain Python, ``function(batch, advantages)``; see `grpo_theory.estimation.Batch`.
    parameters : Mapping[str, float]
        What the kernel finds in ``batch.parameters``, in this order.
    minimum_group_size : int
        The smallest G for which the advantages are defined.
    couples_groups : bool
        Whether an advantage depends on other groups of the batch.
    reads : frozenset of str
        The fields of the batch that the kernel reads.
    exchangeable : bool
        Whether it is declared to treat responses alike, wherever they stand in the group.  Then it is a table over how many
        responses got each reward, and is not called on each group.
    memory : Memory, optional
        What is remembered of a prompt, if anything is.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> kernel = gt.estimators()["grpo"].advantage
    >>> kernel.minimum_group_size, sorted(kernel.reads), kernel.with_parameters({"epsilon": 0.1}).name
    (2, ['parameters', 'rewards'], 'grpo(epsilon=0.1)')
    """

    name: str
    function: Callable
    parameters: Mapping[str, float]
    minimum_group_size: int
    couples_groups: bool
    reads: frozenset[str]
    exchangeable: bool = False
    memory: Memory | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(as_parameters(self.parameters)))

    @cached_property
    def kernel(self) -> Any:
        """The compiled kernel; compiled, or read from numba's cache, at first use."""
        return compile_kernel(self.function)

    def run(self, fields: Iterable[np.ndarray], advantages: Array) -> None:
        """Fill advantages (B, G) for `FIELDS` of a batch, after which come S columns of memory."""
        self.kernel(read_only_batch(fields, self.parameter_array), advantages)

    @property
    def parameter_array(self) -> Array:
        """The parameters' values, shape (P,)."""
        return np.array(list(self.parameters.values()), dtype=np.float64)

    @property
    def description(self) -> str:
        """The first line of the kernel's docstring."""
        return (self.function.__doc__ or self.name).strip().splitlines()[0]

    def with_parameters(self, parameters: Mapping[str, float]) -> "Advantage":
        """Return the same kernel with other values of some of its parameters, under a name that states them."""
        base = self.name.partition("(")[0]
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            allowed = ", ".join(self.parameters) or "none"
            raise ValueError(f"estimator {base!r} has no parameter {unknown[0]!r}; it has: {allowed}")
        merged = {**self.parameters, **as_parameters(parameters)}
        name = f"{base}({', '.join(f'{key}={value!r}' for key, value in merged.items())})"
        return replace(self, name=name, parameters=merged)


def as_parameters(parameters: Mapping[str, float]) -> dict[str, float]:
    """Return parameters as floats; raise unless they are finite numbers by names that can be given as keywords."""
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a mapping of names to numbers, as {{'epsilon': 1e-4}}, got {parameters!r}")
    for name in parameters:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"parameters must have names that can be Python's, as 'epsilon', got {name!r}")
    found = {}
    for name, value in parameters.items():
        found[name] = as_number(name, value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else np.nan
        if not np.isfinite(found[name]):
            raise ValueError(f"parameter {name} must be a finite number that a float can hold, got {printable(repr(value))}")
    return found


_RESPONSES = 2048
"""The most responses of a batch of several groups: plain Python takes some milliseconds for them."""
_LARGEST_GROUP = 8192
"""Larger groups are not tried: an index that is right for so many is right for more."""


@lru_cache(maxsize=256)
def try_kernel(advantage: Advantage, group_size: int) -> None:
    """Run a kernel once as plain Python on made-up groups of this size, before compiled code, which checks no index, runs it.

    Raises
    ------
    ValueError
        If it raises anything; the message has the exception's own words, and the line.
    """
    batches = _batches(advantage, group_size) if group_size <= _LARGEST_GROUP else []
    try:
        compile_kernel(advantage.function)  # what does not compile is said in the contract's words
    except TypeError as error:
        # Of one that writes on the batch in place, numba does not say it.
        made_up = _batches(advantage, max(2, advantage.minimum_group_size))[0]
        why = "" if "readonly" in str(error) else failure(advantage, made_up)
        if "read-only" not in why:
            raise
        name = advantage.function.__qualname__
        raise TypeError(f"the kernel {name!r} writes on the batch, which is read-only: {why}; {contracts.CONTRACT}") from None
    for batch in batches:
        why = failure(advantage, batch)
        if why:
            shape = f"{batch.rewards.shape[0]} x {group_size}"
            raise ValueError(f"the kernel of estimator {advantage.name!r} fails for a batch of {shape} responses: {why}")
    if batches and _fills_nothing(advantage, batches[0]):
        raise ValueError(
            f"the kernel of estimator {advantage.name!r} must fill advantages, and leaves all of them as they are. Write into "
            "the array, as in `advantages[b, g] = ...`, because `advantages = ...` makes another"
        )


def _fills_nothing(advantage: Advantage, batch: Batch) -> bool:
    """Whether a kernel leaves every advantage what it was, whatever that was."""
    for before in (2.0**-9, -3.0):
        advantages = np.full(batch.rewards.shape, before)
        try:
            with np.errstate(all="ignore"):
                plain_python(advantage.function)(batch, advantages)
        except (ArithmeticError, ValueError):  # of a value that is not finite: other failures have been told before
            return False
        if (advantages != before).any():
            return False
    return True


@lru_cache(maxsize=1024)
def try_on_rewards(advantage: Advantage, group_size: int, rewards: bytes, lengths: bytes) -> None:
    """Run a kernel once as plain Python on groups of a problem's own rewards (L,) and lengths (N,), the bytes of these arrays.

    A kernel may look something up by what it reads, and made-up rewards do not tell whether it finds it there.

    Raises
    ------
    ValueError
        If it raises anything; the message has a group's rewards, the exception's own words, and the line.
    """
    values, tokens = np.unique(np.frombuffer(rewards)), np.unique(np.frombuffer(lengths, dtype=np.int64))
    for batch in _own_batches(advantage, group_size, values, tokens) if group_size <= _LARGEST_GROUP else []:
        if failure(advantage, batch):
            for b in range(len(batch.rewards)):  # which of the groups it is
                group = Batch._make([*(field[b : b + 1] for field in batch[:-2]), batch.parameters, batch.memory[b : b + 1]])
                why = failure(advantage, group)
                if why:
                    seen = f"rewards {short(group.rewards[0].tolist())} and lengths {short(group.lengths[0].tolist())}"
                    raise ValueError(
                        f"the kernel of estimator {advantage.name!r} fails for a group of this problem, with {seen}: {why}. "
                        "It must be defined for all rewards and lengths that the problem has"
                    )


def _own_batches(advantage: Advantage, group_size: int, values: Array, lengths: Integers) -> list[Batch]:
    """Return groups of equal responses, those of the ends among them, and groups that go through all rewards and lengths."""
    n_groups = max(2, min(_RESPONSES // group_size, max(values.size, lengths.size)))
    # Places between the first reward or length, 0, and the last, 1.
    places, every = np.linspace(0.0, 1.0, n_groups)[:, None], np.ones(group_size, dtype=np.int64)

    def spread(numbers: np.ndarray, at: Array) -> np.ndarray:
        return numbers[np.rint(at * (numbers.size - 1)).astype(np.int64) * every]

    shown = [(spread(values, places), spread(lengths, others)) for others in (places, 1.0 - places)]
    rows = min(n_groups, -(-max(values.size, lengths.size) // group_size))
    shown.append((np.resize(values, (rows, group_size)), np.resize(lengths, (rows, group_size))))
    return [_batch(advantage, *one) for one in shown]


def _batch(advantage: Advantage, rewards: Array, lengths: Integers) -> Batch:
    """Return groups of these rewards and lengths (B, G), which nobody can write."""
    norms, means, kept = 1.0 + np.random.default_rng(0).random(rewards.shape), rewards.mean(axis=1), advantage.memory
    known = means, rewards.std(axis=1), means, *(np.resize(kept.start, (len(rewards), kept.start.shape[1])).T if kept else ())
    return read_only_batch([rewards, norms, lengths, -norms, *known], advantage.parameter_array)


def failure(advantage: Advantage, batch: Batch) -> str:
    """Return what a kernel raises as plain Python on a batch, and at which line; nothing if it raises nothing.

    Exceptions that only plain Python raises, for a division by zero or the root of a negative number, do not count. The compiled
    kernel gives a value that is not finite there, which is a separate error.
    """
    try:
        with np.errstate(all="ignore"):
            plain_python(advantage.function)(batch, np.full(batch.rewards.shape, np.nan))
            if advantage.memory:
                for own, rewards in zip(batch.memory.copy(), batch.rewards, strict=True):
                    plain_python(advantage.memory.function)(own, rewards, batch.parameters)
    except Exception as error:
        if isinstance(error, ArithmeticError) or str(error) == "math domain error":
            return ""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} (line {frame.lineno} of {frame.filename}: {frame.line})"
    return ""


def _batches(advantage: Advantage, group_size: int) -> list[Batch]:
    """Make up a group with both rewards and, if they are small, groups that are all wrong, all right and of many values."""
    rng = np.random.default_rng(0)
    rewards = [np.resize(np.array([0.0, 1.0]), group_size)[None]]
    if 3 * group_size <= _RESPONSES:
        rewards.append(np.stack([np.zeros(group_size), np.ones(group_size), rng.random(group_size)]))
    return [_batch(advantage, own, rng.integers(1, 9, own.shape)) for own in rewards]


LARGEST_GROUP = 2048
"""The largest group that is run on symbols, because their forms take 8 G^2 bytes."""


class AffineForm(NDArrayOperatorsMixin):
    """A linear combination of symbols plus a constant, its last coefficient; anything else that is asked of it is refused."""

    def __init__(self, coefficients: Array) -> None:
        self.coefficients = coefficients

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Self:
        if any(isinstance(one, np.ndarray) for one in inputs):  # a vectorised kernel's: element by element
            forms = [np.array(one, dtype=object) if isinstance(one, AffineForm) else one for one in inputs]
            return getattr(ufunc, method)(*forms, **options)
        # Comparisons are refused, too.  A kernel that asks whether rewards are equal would take one branch for all of them.
        forms = [isinstance(one, AffineForm) for one in inputs]
        added = ufunc in (np.add, np.subtract)
        scaled = (ufunc is np.multiply and not all(forms)) or (ufunc is np.true_divide and not forms[1])
        if method != "__call__" or not (added or scaled or ufunc in (np.negative, np.positive)):
            raise TypeError("an affine form has no such operation")
        constant = np.eye(self.coefficients.size)[-1] if added else 1.0
        parts = [one.coefficients if form else float(one) * constant for one, form in zip(inputs, forms, strict=True)]
        return type(self)(ufunc(*parts))

    def __bool__(self) -> bool:
        raise TypeError("an affine form is not true or false")


@lru_cache(maxsize=64)
def affine_coefficients(advantage: Advantage, group_size: int) -> Array | None:
    """Return the coefficients of a kernel's advantages, or None if they are not shown to be affine and alike for all responses.

    Returns
    -------
    ndarray, shape (6,), or None
        Five coefficients and the constant.  The coefficients multiply the response's own reward, the sum of the group's rewards,
        and the prompt's value, standard deviation and optimal baseline.
    """
    if advantage.couples_groups or advantage.memory or advantage.reads & set(RESPONSE_FIELDS[1:]) or group_size > LARGEST_GROUP:
        return None
    n_symbols = group_size + len(PROMPT_FIELDS)
    identity, symbols = np.eye(n_symbols + 1), np.empty(n_symbols, dtype=object)
    for i in range(n_symbols):
        symbols[i] = AffineForm(identity[i])
    advantages = np.full((1, group_size), np.nan, dtype=object)
    fields = (symbols[group_size + f : group_size + f + 1] for f in range(len(PROMPT_FIELDS)))
    lengths, norms = np.ones((1, group_size), dtype=np.int64), np.full((1, group_size), np.nan)
    batch = read_only_batch([symbols[None, :group_size], norms, lengths, norms, *fields], advantage.parameter_array)
    try:
        advantage.function(batch, advantages)
        forms = [form if isinstance(form, AffineForm) else AffineForm(float(form) * identity[-1]) for form in advantages[0]]
    except Exception:
        return None
    table = np.array([form.coefficients for form in forms])
    # The rule A_g = a Z_g + b sum_h Z_h + c (V, sd, b*) + constant has row g: a + b at place g, b at the others, then c.
    # What the rows of this table (G, G + 4) have in common, if they are those of one rule for all responses.
    if not np.isfinite(table).all():
        return None
    others = table[0, 1] if group_size > 1 else 0.0
    coefficients = np.array([table[0, 0] - others, others, *table[0, group_size:]])
    expected = np.hstack([np.full((group_size, group_size), others), np.tile(coefficients[2:], (group_size, 1))])
    expected[:, :group_size] += coefficients[0] * np.eye(group_size)
    scale = max(1.0, np.abs(table).max())
    return coefficients if (np.abs(table - expected) <= 1e-14 * group_size * scale).all() else None
