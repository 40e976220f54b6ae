"""The contract of an advantage kernel: what it may read, its one compiled signature, and how it is compiled."""

import ast
import dis
import inspect
import re
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import types

from grpo_theory.arrays import Array, Integers
from grpo_theory.compiler import (
    CHECKS_BOUNDS,
    F2,
    WITHOUT_COMPILER,
    FirstClassType,
    allocating_stage,
    code_dependencies,
    compilation_failure,
    compile_function,
    inferring_first,
)


class Batch(NamedTuple):
    """What a kernel may read: B groups of G responses, one prompt for each group, as they were when they were sampled.

    A kernel that does not declare that it couples groups may be given those of many batches at once.

    Attributes
    ----------
    rewards : ndarray, shape (B, G)
    squared_score_norms : ndarray, shape (B, G)
        ||grad log pi(response | prompt)||^2 of the policy that sampled.
    lengths : ndarray of int64, shape (B, G)
        Numbers of tokens; 1 in a bandit.
    values : ndarray, shape (B,)
        The prompt's true value V(x) = E[Z | x] under the policy that sampled (for oracles).
    standard_deviations : ndarray, shape (B,)
        The prompt's true standard deviation of the reward (for oracles).
    optimal_baselines : ndarray, shape (B,)
        The prompt's b*(x) = E[||W||^2 Z | x] / E[||W||^2 | x] (for oracles).
    parameters : ndarray, shape (P,)
        The estimator's own parameters, in the order in which it declares them.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> @gt.estimator("centred_of_mine")
    ... def centred(batch, advantages):
    ...     for b in range(batch.rewards.shape[0]):
    ...         mean = batch.rewards[b].mean()
    ...         for g in range(batch.rewards.shape[1]):
    ...             advantages[b, g] = batch.rewards[b, g] - mean
    >>> gt.advantages([[1.0, 0.0]], centred)[0].tolist()
    [0.5, -0.5]
    """

    rewards: Array
    squared_score_norms: Array
    lengths: Integers
    values: Array
    standard_deviations: Array
    optimal_baselines: Array
    parameters: Array


_DEFERRED = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
RESPONSE_FIELDS = ("rewards", "squared_score_norms", "lengths")
PROMPT_FIELDS = ("values", "standard_deviations", "optimal_baselines")


def _signature(*, readonly: bool) -> Any:
    """Return the signature of a kernel, its batch read-only or not."""

    def array(element: types.Type, ndim: int) -> types.Array:
        return types.Array(element, ndim, "C", readonly=readonly)

    tables = (array(types.float64, 2), array(types.float64, 2), array(types.int64, 2))
    vectors = tuple(array(types.float64, 1) for _ in range(4))
    return types.void(types.NamedTuple((*tables, *vectors), Batch), F2)


SIGNATURE = _signature(readonly=False)
KERNEL = FirstClassType(SIGNATURE)
_WHOLE_BATCH = re.compile(r" of type Batch\(.*")

CONTRACT = (
    "a kernel is kernel(batch, advantages): it reads batch."
    + ", batch.".join(Batch._fields)
    + ", writes on none of them, and fills advantages (B, G) in place; it draws nothing and returns nothing"
)


_KERNEL_COMPILER = inferring_first(_signature(readonly=True))
"""Nobody may write on a batch, because it is shared by all the kernels that see it."""


@cache
def compile_kernel(function: Callable) -> Any:
    """Compile a kernel to the one fixed signature, or say in the contract's words why it cannot be.

    Its types are inferred for a read-only batch first.  All kernels that see a batch share it, so a kernel that writes on it must
    not compile.  A kernel that raises leaves NaN, because drivers go on after an exception and stop at NaN.

    Raises
    ------
    TypeError
        If the function does not compile; the message names the documented arguments.
    """
    draws = code_dependencies(function).draws
    if draws:
        raise TypeError(f"the kernel {function.__qualname__!r} draws random numbers, by {draws[0]}; {CONTRACT}")
    try:
        raises = (_may_raise(function) or CHECKS_BOUNDS) and not WITHOUT_COMPILER
        whole = _guarded(allocating_stage(function)) if raises else function
        return compile_function(whole, SIGNATURE, pipeline_class=_KERNEL_COMPILER)
    except Exception as error:  # numba raises more than its own errors for what it cannot compile
        raise TypeError(
            f"the kernel {function.__qualname__!r} does not compile: {_reason(error, function)}; {CONTRACT}"
        ) from None


def _reason(error: Exception, function: Callable) -> str:
    """Return why a kernel does not compile, without the types of its arguments, and the line that the compiler points at."""
    reason, code = compilation_failure(error, function)
    reason = _WHOLE_BATCH.sub("", reason).rstrip(". ")
    return f"{reason}, in `{code}`" if code else reason


def _may_raise(function: Callable) -> bool:
    """Whether a kernel's code raises anything itself."""
    return any(one.opname == "RAISE_VARARGS" for one in dis.get_instructions(function))


def _guarded(kernel: Any) -> Callable:
    """Return a kernel that fills in NaN where the compiled kernel raises."""

    def guarded(batch, advantages):
        try:
            kernel(batch, advantages)
        except Exception:
            advantages[:, :] = np.nan

    return guarded


def check_arguments(function: Callable) -> None:
    """Raise unless the function takes two positional arguments."""
    if not callable(function):
        raise TypeError(f"the kernel must be a Python function, got {function!r}; {CONTRACT}")
    positional = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    kinds = (
        [p.kind for p in inspect.signature(function, follow_wrapped=False).parameters.values()]
        if inspect.isfunction(function)
        else []
    )
    if inspect.isfunction(function) and function.__code__.co_flags & _DEFERRED:
        raise TypeError(f"the kernel {function.__qualname__!r} must run when it is called, not be async or yield; {CONTRACT}")
    if len(kinds) != 2 or not positional.issuperset(kinds):
        raise TypeError(f"the kernel {function!r} must be a plain function of two arguments; {CONTRACT}")


def fields_read(function: Callable) -> frozenset[str]:
    """Return the fields of the batch that a kernel reads, from its source.

    Every field counts as read if the source cannot be had.  The same holds if the kernel uses the batch other than by naming a
    field (passes it on whole, unpacks it).  Exact theory then enumerates more than it needs to, and stays exact.
    """
    everything = frozenset(Batch._fields)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function.__code__)))
    except (OSError, TypeError, SyntaxError):
        return everything
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return everything
    batch = (definition.args.posonlyargs + definition.args.args)[0].arg
    attributes = [node for node in ast.walk(definition) if isinstance(node, ast.Attribute)]
    named = [node for node in attributes if isinstance(node.value, ast.Name) and node.value.id == batch]
    mentions = [node for node in ast.walk(definition) if isinstance(node, ast.Name) and node.id == batch]
    fields = frozenset(node.attr for node in named)
    if len(mentions) != len(named) or not fields <= everything:
        return everything
    return fields
