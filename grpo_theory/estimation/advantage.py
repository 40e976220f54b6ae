"""An advantage kernel with everything that is known of it."""

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
    """Return parameters as floats; raise unless they are finite numbers."""
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not np.isfinite(float(value)):
            raise ValueError(f"parameter {name} must be a finite number, got {value!r}")
    return {name: float(value) for name, value in parameters.items()}
