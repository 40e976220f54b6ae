"""An advantage kernel with everything that is known of it."""

import inspect
import numbers
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from grpo_theory.arrays import Array
from grpo_theory.estimation.kernel import compile_kernel
from grpo_theory.estimation.source import SourceFile


@dataclass(frozen=True, eq=False)
class Advantage:
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
        return replace(self, name=name, parameters=MappingProxyType(merged))

    def is_same_kernel(self, other: "Advantage") -> bool:
        """Whether both are one kernel: the same place in a module, or the same code."""
        origins = [(one.function.__module__, one.function.__qualname__) for one in (self, other)]
        codes = [(one.function.__code__.co_code, one.function.__code__.co_consts) for one in (self, other)]
        return origins[0] == origins[1] or codes[0] == codes[1]

    def __reduce__(self) -> tuple[Callable, tuple]:
        """Pickle with the file that the kernel is defined in, so that it reaches processes that have not imported it."""
        facts = (self.name, dict(self.parameters), self.minimum_group_size, self.couples_groups, self.reads)
        return restore, (source_of(self.function), self.function.__qualname__, *facts)


def as_parameters(parameters: Mapping[str, float]) -> dict[str, float]:
    """Return parameters as floats; raise unless they are finite numbers."""
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not np.isfinite(float(value)):
            raise ValueError(f"parameter {name} must be a finite number, got {value!r}")
    return {name: float(value) for name, value in parameters.items()}


def source_of(function: Callable) -> SourceFile:
    """Return the file that a function is defined in.

    Raises
    ------
    TypeError
        If there is no file, as for a function typed at a prompt.
    """
    path = inspect.getsourcefile(function)
    if path is None or not Path(path).is_file() or "<locals>" in function.__qualname__:
        raise TypeError(
            f"the kernel {function.__qualname__!r} must be defined at the top level of a file to be sent to another process"
        )
    return SourceFile.read(Path(path), function.__module__)


def restore(source: SourceFile, qualname: str, name: str, parameters: dict[str, float], *facts: Any) -> Advantage:
    """Return the advantage of a pickle: its file is run if need be, and the kernel found in it by name."""
    module = source.load() if source.module != "__main__" else sys.modules["__main__"]
    found = getattr(module, qualname)
    function = found if inspect.isfunction(found) else found.advantage.function
    return Advantage(name, function, MappingProxyType(parameters), *facts)
