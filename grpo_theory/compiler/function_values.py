"""Functions of arrays that drivers take as values, compiled at their first use."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from grpo_theory.compiler.compilation import compile_function
from grpo_theory.compiler.function_pointers import FirstClass, FirstClassType, first_class_value
from grpo_theory.compiler.options import WITHOUT_COMPILER


class FunctionValue:
    """A function of arrays with its one signature, compiled at its first use, that drivers take as a value.

    Attributes
    ----------
    function : callable
        The function as plain Python, the twin that the tests run.
    signature : numba signature
    """

    def __init__(self, function: Callable, signature: Any) -> None:
        self.function = function
        self.signature = signature
        self.__doc__ = function.__doc__

    @cached_property
    def dispatcher(self) -> Any:
        """The compiled function."""
        return compile_function(self.function, self.signature)

    @cached_property
    def value(self) -> Any:
        """The compiled function as a value that a driver takes."""
        return first_class_value(self.dispatcher, self.signature)

    @cached_property
    def type(self) -> FirstClassType:
        """The type of the value, for signatures of drivers."""
        return FirstClassType(self.signature)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return self.dispatcher(*arguments)

    def __reduce__(self) -> Any:
        """Leave what was compiled behind."""
        return FunctionValue, (self.function, self.signature)

    def __repr__(self) -> str:
        return f"FunctionValue({self.function.__qualname__})"


def function_value(signature: Any) -> Callable[[Callable], FunctionValue]:
    """Make a function a `FunctionValue` with this signature."""
    return lambda function: FunctionValue(function, signature)


def value_or_null(function: FunctionValue, is_called: bool) -> Any:
    """Return a function as a value for drivers, or a null pointer if it is not called: nothing is compiled for that."""
    return function.value if is_called or WITHOUT_COMPILER else FirstClass(function.type)
