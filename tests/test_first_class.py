"""Functions as values that compiled code takes, and what compiling costs others: neither their options nor their garbage."""

import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest

from grpo_theory.compiler import F1, OPTIONS, FirstClassType, function_value
from grpo_theory.estimation.kernel import centre
from grpo_theory.estimation.parts import RATIOS

SCALE = numba.void(F1, numba.float64)


@function_value(SCALE)
def double(array, by):
    """Multiply by twice a number."""
    for i in range(array.shape[0]):
        array[i] *= 2.0 * by


@function_value(SCALE)
def refuse(array, by):
    """Raise if the number is negative, and else leave everything as it is."""
    if by < 0.0:
        raise ValueError("by must not be negative")


def call(function, array, by):
    function(array, by)


@pytest.fixture(scope="module")
def driver():
    """A compiled function that calls the one that it is given, one machine code for all."""
    compiled = numba.njit(numba.void(FirstClassType(SCALE), F1, numba.int64), **OPTIONS)(call)
    compiled.disable_compile()
    return compiled


def test_one_machine_code_calls_any_function_of_the_signature(driver):
    array = np.array([1.0, -3.0])
    driver(double.value, array, 5)  # an integer, where the signature has a real number
    np.testing.assert_array_equal(array, [10.0, -30.0])
    driver(refuse.value, array, 1)
    double.value(array, 0.5)
    np.testing.assert_array_equal(array, [10.0, -30.0])
    assert len(driver.signatures) == 1


def test_what_a_function_raises_reaches_python(driver):
    with pytest.raises(ValueError, match="by must not be negative"):
        driver(refuse.value, np.ones(2), -1)


def test_what_is_pickled_of_a_function_is_compiled_anew():
    value = RATIOS["token"].fill
    address = value.value.address
    assert address
    with pytest.raises(TypeError, match="cannot be pickled: pickle the FunctionValue"):
        pickle.dumps(value.value)
    again = pickle.loads(pickle.dumps(value))
    assert again.function is value.function
    assert vars(again).keys() == {"function", "signature", "__doc__"}
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)([1.0, 2.0], __import__('numpy').empty(2)))"
    found = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(centre), capture_output=True, check=False)
    assert found.returncode == 1  # a list has no size: the stage has arrived, and ran
    assert b"'list' object has no attribute 'size'" in found.stderr
