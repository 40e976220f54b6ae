"""The only subpackage that touches the inside of numba and of LLVM; docs/compiler.md says what each of its tricks buys.

The others import what is listed here, and lanes from `grpo_theory.compiler.lanes`.
"""

from grpo_theory.compiler.cache import DamagedCacheWarning
from grpo_theory.compiler.compilation import Driver, allocating_driver, compile_function, driver
from grpo_theory.compiler.dependencies import CodeDependencies, code_checksum, code_dependencies
from grpo_theory.compiler.diagnostics import compilation_failure
from grpo_theory.compiler.function_pointers import FirstClass, FirstClassType, first_class_value
from grpo_theory.compiler.function_values import FunctionValue, function_value, value_or_null
from grpo_theory.compiler.inference import inferring_first
from grpo_theory.compiler.options import CHECKS_BOUNDS, NO_ARRAYS, OPTIONS, PROCESSOR, WITHOUT_COMPILER
from grpo_theory.compiler.python_twins import plain_python
from grpo_theory.compiler.signatures import (
    F1,
    F2,
    F3,
    F4,
    F5,
    I1,
    I2,
    READONLY_F1,
    READONLY_F2,
    READONLY_I1,
    READONLY_I2,
    readonly,
    record_type,
)
from grpo_theory.compiler.stages import allocating_stage, stage

__all__ = [
    "CHECKS_BOUNDS",
    "F1",
    "F2",
    "F3",
    "F4",
    "F5",
    "I1",
    "I2",
    "NO_ARRAYS",
    "OPTIONS",
    "PROCESSOR",
    "READONLY_F1",
    "READONLY_F2",
    "READONLY_I1",
    "READONLY_I2",
    "WITHOUT_COMPILER",
    "CodeDependencies",
    "DamagedCacheWarning",
    "Driver",
    "FirstClass",
    "FirstClassType",
    "FunctionValue",
    "allocating_driver",
    "allocating_stage",
    "code_checksum",
    "code_dependencies",
    "compilation_failure",
    "compile_function",
    "driver",
    "first_class_value",
    "function_value",
    "inferring_first",
    "plain_python",
    "readonly",
    "record_type",
    "stage",
    "value_or_null",
]
