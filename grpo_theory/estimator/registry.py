"""The registry of estimators: one list from which every other list derives."""

import difflib
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_theory.estimator.kernel import check_arguments, compile_kernel, fields_read
from grpo_theory.validation import as_count


@dataclass(frozen=True, eq=False)
class Estimator:
    """An estimator of the policy gradient: (1/BG) sum_bg A_bg W_bg with advantages A from a kernel.

    Attributes
    ----------
    name : str
        The registered name.
    function : callable
        The kernel as plain Python, ``function(batch, advantages)``; see `grpo_theory.estimator.Batch`.
    parameters : Mapping[str, float]
        What the kernel finds in ``batch.parameters``, in this order.
    minimum_group_size : int
        The smallest G for which the advantages are defined.
    couples_groups : bool
        Whether an advantage depends on other groups of the batch; exact theory is then not to be had, simulation is.
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
    def parameter_array(self) -> NDArray[np.float64]:
        """The parameters' values, shape (P,)."""
        return np.array(list(self.parameters.values()), dtype=np.float64)

    @property
    def description(self) -> str:
        """The first line of the kernel's docstring."""
        return (self.function.__doc__ or self.name).strip().splitlines()[0]

    def with_parameters(self, **parameters: float) -> "Estimator":
        """Return the same estimator with other values of some of its parameters, under a name that states them.

        The registry is left as it is.
        """
        base = self.name.partition("(")[0]
        unknown = sorted(set(parameters) - set(self.parameters))
        if unknown:
            allowed = ", ".join(self.parameters) or "none"
            raise ValueError(f"estimator {base!r} has no parameter {unknown[0]!r}; it has: {allowed}")
        merged = {**self.parameters, **_as_parameters(parameters)}
        name = f"{base}({', '.join(f'{key}={value!r}' for key, value in merged.items())})"
        return replace(self, name=name, parameters=MappingProxyType(merged))

    def __reduce__(self) -> tuple[Callable, tuple]:
        """Copy and pickle by name: the process that unpickles imports the module that registers the kernel."""
        return _restore, (self.function.__module__, self.name.partition("(")[0], dict(self.parameters))

    def check_group_size(self, group_size: int) -> None:
        """Raise if the estimator is not defined for groups so small."""
        if group_size < self.minimum_group_size:
            raise ValueError(
                f"group_size must be at least {self.minimum_group_size} for estimator {self.name!r}, got {group_size}"
            )


_REGISTRY: dict[str, Estimator] = {}


def _as_parameters(parameters: Mapping[str, float]) -> dict[str, float]:
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not np.isfinite(float(value)):
            raise ValueError(f"parameter {name} must be a finite number, got {value!r}")
    return {name: float(value) for name, value in parameters.items()}


def _restore(module: str, name: str, parameters: dict[str, float]) -> Estimator:
    if name not in _REGISTRY:
        import_module(module)
    found = find(name)
    return found if parameters == dict(found.parameters) else found.with_parameters(**parameters)


def estimator(
    name: str,
    *,
    parameters: Mapping[str, float] | None = None,
    minimum_group_size: int = 1,
    couples_groups: bool = False,
) -> Callable[[Callable], Estimator]:
    """Register a kernel under a name; the decorated function becomes an `Estimator`.

    Parameters
    ----------
    name : str
        The name by which every function of the package accepts the estimator.
    parameters : Mapping[str, float], optional
        Names and default values of what the kernel finds in ``batch.parameters``.
    minimum_group_size : int, default 1
        The smallest G for which the advantages are defined; 2 for leave-one-out estimators.
    couples_groups : bool, default False
        Whether an advantage depends on other groups of the batch; if not, training runs give the kernel the groups of many
        batches at once.

    Raises
    ------
    TypeError
        If the function is not a kernel.
    ValueError
        If another kernel has the name already.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> @gt.estimator("halfway")
    ... def halfway(batch, advantages):
    ...     for b in range(batch.rewards.shape[0]):
    ...         for g in range(batch.rewards.shape[1]):
    ...             advantages[b, g] = batch.rewards[b, g] - 0.5
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a non-empty string, got {name!r}")
    minimum_group_size = as_count("minimum_group_size", minimum_group_size)

    def register(function: Callable) -> Estimator:
        check_arguments(function)
        known = _REGISTRY.get(name)
        origin = (function.__module__, function.__qualname__)
        if known is not None and (known.function.__module__, known.function.__qualname__) != origin:
            raise ValueError(f"name must be new, but an estimator {name!r} is registered by {known.function.__module__}")
        _REGISTRY[name] = Estimator(
            name=name,
            function=function,
            parameters=MappingProxyType(_as_parameters(parameters or {})),
            minimum_group_size=minimum_group_size,
            couples_groups=couples_groups,
            reads=fields_read(function),
        )
        return _REGISTRY[name]

    return register


def estimators() -> Mapping[str, Estimator]:
    """Return the registry: name -> `Estimator`, in the order of registration."""
    return MappingProxyType(_REGISTRY)


def find(estimator: str | Estimator) -> Estimator:
    """Return the estimator of that name; an `Estimator` is returned as it is.

    Raises
    ------
    ValueError
        If no estimator has the name; the message suggests the nearest.
    """
    if isinstance(estimator, Estimator):
        return estimator
    if not isinstance(estimator, str):
        raise TypeError(f"estimator must be a registered name or an Estimator, got {estimator!r}")
    if estimator not in _REGISTRY:
        near = difflib.get_close_matches(estimator, _REGISTRY, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"estimator must be one of {', '.join(_REGISTRY)}, got {estimator!r}{hint}")
    return _REGISTRY[estimator]
