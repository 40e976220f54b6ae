"""Types of arrays, and checks of what a user passes in: one message names the argument, the value and what is allowed."""

import inspect
import math
import numbers
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, partial, wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grpo_theory.user_text import listed, printable

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Number = Any
"""A float, or an array of floats where many are asked for at once."""


Value = TypeVar("Value")


def read_only(value: Value) -> Value:
    """Return an array that is ours, with what it is a view of, or a record or tuple of such arrays, closed to writing."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
        if value.base is not None:
            read_only(value.base)
    elif isinstance(value, tuple):
        for one in value:
            read_only(one)
    elif is_dataclass(value):
        for one in fields(value):
            read_only(getattr(value, one.name))
    return value


def kept(array: np.ndarray) -> np.ndarray:
    """Return an array as a record keeps it, closed to writing: a copy, unless nobody can write it as it is."""
    open_to_writing = array.flags.writeable or (array.base is not None and getattr(array.base, "flags", array.flags).writeable)
    return read_only(array.copy() if open_to_writing else array)


class cached_array(cached_property[Value]):  # noqa: N801  # a decorator, named as its parent
    """A cached property that is an array or a record of arrays: closed to writing, because others read it after."""

    def __init__(self, function: Callable[[Any], Value]) -> None:
        super().__init__(wraps(function)(lambda instance: read_only(function(instance))))


Function = TypeVar("Function", bound=Callable[..., Any])
Rng = int | np.random.SeedSequence | np.random.Generator

SUM_TOLERANCE = 1e-9
MOST = 2**53
"""The largest count: above it floats skip integers."""
MOST_BYTES = 2e9
"""The most memory that a dense array of one step of a computation may take."""
ROUNDING = 1e-14
"""The variation of numbers, relative to their size, that counts as rounding."""

MADE_BY = {
    "Policy": "gt.TokenTree(...) or problem.policy makes",
    "Problem": "gt.Problem(bandit, policy) or gt.gallery.problem(name) makes",
    "Point": "problem.at(theta) makes",
    "Moments": "gt.moments(problem, theta) makes",
    "Groups": "gt.Rollouts(rewards, scores) or gt.RaggedRollouts(prompts, rewards, scores) makes",
    "RewardCounts": "gt.RewardCounts.from_rewards(prompts, rewards) makes",
    "TrainingRecord": "gt.TrainingRecord(step_sizes, path, mean_rewards) or gt.simulate_records makes",
    "Region": "gt.exact.region(problem, optimum, radius=..., reach=...) makes",
    "Linearisation": "gt.theory.linearise(problem, optimum, estimator, ...) makes",
}
"""How a user comes by what a function asks for."""


class Argument(str):
    """The name of an argument, in a message that others may repeat under another name."""


class ArgumentError(ValueError):
    """A value that an argument must not have, in a message whose parts are words and names of arguments.

    Parameters
    ----------
    *parts : str
        The pieces of the message; each name of an argument is an `Argument`. A command can then repeat the message with its
        options' names, and never takes a user's text for a name.
    """

    def __init__(self, *parts: str) -> None:
        super().__init__("".join(parts))
        self.parts = parts

    def renamed(self, names: Mapping[str, str]) -> str:
        """Return the message with other names for its arguments, those that are not listed under their own."""
        return "".join(names.get(part, part) if isinstance(part, Argument) else part for part in self.parts)


def typed(function: Function) -> Function:
    """Check the arguments that are annotated with a class of `MADE_BY`: another kind is a TypeError that says how to make one."""
    names = list(inspect.signature(function).parameters)
    kinds = {name: getattr(kind, "__name__", kind) for name, kind in function.__annotations__.items()}
    wanted = {name: function.__globals__[kind] for name, kind in kinds.items() if kind in MADE_BY and name in names}

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in wanted and not isinstance(value, wanted[name]):
                kind = wanted[name].__name__
                article = "" if kind.endswith("s") else "a "
                raise TypeError(f"{name} must be {article}{kind}, as {MADE_BY[kind]}, got {shown(value)}")
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def check_name(argument: str, value: str, names: Collection[str]) -> None:
    """Raise unless a string is one of the names: the message lists them, the nearest first if they are many."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a name, got {shown(value)}")
    if value not in names:
        raise ArgumentError(Argument(argument), f" must be one of {listed(names, [value])}, got {shown(value)}")


def counted(count: int, noun: str) -> str:
    """Return a count and what is counted: 1 prompt, 2 prompts."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shown(value: object) -> str:
    """Return a value as a message shows it: strings and numbers (cut if very long), others by kind, arrays with shape."""
    if value is None or isinstance(value, str | numbers.Number):
        return printable(repr(value))
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    return f"{kind} of shape {value.shape}" if isinstance(value, np.ndarray) else f"an object of type {kind}"


def outline(record: Any) -> str:
    """Return the text of a record of arrays, its ``__repr__``: each field by its number, its length or its shape, in one line."""

    def short(value: Any) -> str:
        if hasattr(value, "shape"):
            return f"{type(value).__name__} of shape {value.shape}"
        return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list | dict) else shown(value)

    names = getattr(record, "_fields", None) or [one.name for one in fields(record)]
    return f"{type(record).__name__}({', '.join(f'{name}={short(getattr(record, name))}' for name in names)})"


def as_array(name: str, value: Any, dtype: Any = None) -> np.ndarray:
    """Return what a user passes in as an array, itself if it is one; numpy alone would hand on what lies below a mask.

    Raises
    ------
    ValueError
        If a value is masked, or rows differ in length.
    """
    check_unmasked(name, value)
    try:
        return np.asarray(value, dtype=dtype)
    except ValueError as error:
        raise ValueError(f"{name} must be an array: {error}") from None


def check_unmasked(name: str, value: Any) -> None:
    """Raise if a value of an array, or of an array in a list, is masked."""
    hidden = _masked(value)
    if hidden:
        raise ValueError(f"{name} must have no masked value, got {hidden:,}: leave those out, or fill them (numpy.ma.filled)")


def _masked(value: Any) -> int:
    if isinstance(value, np.ma.MaskedArray):
        return int(np.ma.count_masked(value))
    return sum(_masked(one) for one in value if not isinstance(one, float)) if isinstance(value, list | tuple) else 0


def as_real_array(name: str, value: ArrayLike, ndim: int | None) -> Array:
    """Return a finite, contiguous float64 copy of `value` with `ndim` dimensions, at least one if None, and no empty axis."""
    wanted = "dimensions, at least one" if ndim is None else f"{ndim} dimensions"
    array = np.array(as_numbers(name, value, f"an array of real numbers with {wanted}"), order="C")
    if array.ndim != ndim and (ndim is not None or array.ndim == 0):
        raise ValueError(f"{name} must have {wanted}, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    check_finite(name, array)
    return array


def as_numbers(name: str, value: ArrayLike, wanted: str = "a real number or an array of them") -> Array:
    """Return real numbers of any shape, NaN and infinite ones among them, as float64."""
    check_unmasked(name, value)
    try:
        if np.iscomplexobj(value) or np.asarray(value).dtype.kind in "mM":  # times would be counts of their unit
            raise TypeError("complex numbers, dates and times are not real numbers")
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be {wanted}: {error}") from None


def first_of(bad: Flags) -> tuple[int, ...] | None:
    """Return the index of the first entry that is marked, if one is."""
    return tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else None


def check_finite(name: str, array: Array) -> None:
    """Raise if an entry is NaN or infinite, naming the first."""
    if (where := first_of(~np.isfinite(array))) is not None:
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")


def check_within(name: str, array: Array, low: float, high: float) -> None:
    """Raise if an entry lies outside [low, high], naming the first."""
    if (where := first_of((array < low) | (array > high))) is not None:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {array[where]:g} at index {where}")


def check_size(name: str, array: Array, most: float) -> None:
    """Raise if an entry is not finite, or further from 0 than the largest that is computed with, naming the first."""
    if not (array.min() >= -most and array.max() <= most):  # NaN is in neither
        check_finite(name, array)
        check_within(name, array, -most, most)


def check_room(what: str, shape: tuple[int, ...], instead: str) -> None:
    """Raise if a dense array of floats would take more memory than is meant by anybody: the message says what to ask instead."""
    size = 8.0 * math.prod(shape)
    if size > MOST_BYTES:
        raise ValueError(f"{what}, of shape {shape}, would take {size / 1e9:,.1f} GB, over {MOST_BYTES / 1e9:g}: {instead}")


def as_distribution(name: str, value: ArrayLike, ndim: int) -> Array:
    """Return probabilities along the last axis as float64; those of a shorter type are divided by a sum that is 1 within it."""
    array = as_real_array(name, value, ndim)
    given = np.asarray(value).dtype
    if given.kind == "f" and given.itemsize < array.itemsize:
        total = array.sum(axis=-1, keepdims=True)
        close = np.abs(total - 1.0) <= array.shape[-1] * float(np.finfo(given).eps)
        array = np.where(close & (array.min(axis=-1, keepdims=True) >= 0.0), array / np.where(close, total, 1.0), array)
    check_within(name, array, 0.0, 1.0)
    total = array.sum(axis=-1)
    if (where := first_of(np.abs(total - 1.0) > SUM_TOLERANCE)) is not None:
        place = f" at index {where}" if where else ""
        raise ValueError(f"{name} must sum to 1 along the last axis, got a sum of {total[where]:.12g}{place}")
    return array


def check_shape(name: str, array: np.ndarray, shape: tuple[int, ...], meaning: str) -> None:
    """Raise unless `array` has `shape`; `meaning` says what the shape stands for."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} = {meaning}, got {array.shape}")


def as_count(name: str, value: int, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer of at least {minimum}, got {value!r}")
    for wrong, must in ((value < minimum, f"at least {minimum}"), (value > MOST, f"at most {MOST}")):
        if wrong:
            raise ArgumentError(Argument(name), f" must be {must}, got {value}")
    return int(value)


def as_flag(name: str, value: bool) -> bool:
    """Return True or False; raise if it is neither."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def as_number(name: str, value: float, wanted: str = "a number") -> float:
    """Return a real number as a float, infinite if it is too large for one; anything else is a TypeError that says so."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {wanted}, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def as_number_within(wanted: str, must: str, low: float, high: float, name: str, value: float) -> float:
    """Return `value` as a float from `low` to before `high`; messages say what is wanted, and what must be."""
    number = as_number(name, value, wanted)
    if not low <= number < high:
        raise ArgumentError(Argument(name), f" must {must}, got {value}")
    return number


SMALLEST = float(np.nextafter(0.0, 1.0))
as_positive = partial(as_number_within, "a number above 0", "be finite and above 0", SMALLEST, np.inf)
"""Return a value as a finite float above zero, from the name of its argument and the value."""
as_not_negative = partial(as_number_within, "a number of at least 0", "be finite and at least 0", 0.0, np.inf)
"""Return a value as a finite float of at least zero."""
_BETWEEN = "strictly between 0 and 1"
as_fraction = partial(as_number_within, f"a number {_BETWEEN}", f"lie {_BETWEEN}", SMALLEST, 1.0)
"""Return a value as a float strictly between 0 and 1."""


def as_generator(rng: Rng | None) -> np.random.Generator:
    """Return the generator that `rng` is or seeds; fresh entropy if it is None."""
    if rng is None or isinstance(rng, np.random.SeedSequence | np.random.Generator):
        return np.random.default_rng(rng)
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool) and rng >= 0:
        return np.random.default_rng(int(rng))
    raise TypeError(f"rng must be a non-negative int, a SeedSequence or a Generator, got {rng!r}")
