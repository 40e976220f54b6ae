"""Advantage kernels with their names, parameters and requirements."""

import keyword
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation.kernel import compile_kernel
from grpo_theory.estimation.part import Part


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(as_parameters(self.parameters)))

    @cached_property
    def kernel(self) -> Any:
        """The compiled kernel; compiled, or read from numba's cache, at first use."""
        return compile_kernel(self.function)

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
    return {name: _as_parameter(name, value) for name, value in parameters.items()}


def _as_parameter(name: str, value: float) -> float:
    try:
        number = float("nan") if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    except OverflowError:
        number = float("inf")
    if not np.isfinite(number):
        shown = repr(value) if not isinstance(value, numbers.Rational) or abs(value) < 10**30 else "a number beyond 1e30"
        raise ValueError(f"parameter {name} must be a finite number that a float can hold, got {shown}")
    return number
