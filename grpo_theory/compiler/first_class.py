"""Old import path, for branches that are merged later; tools of the merge rewrite their imports, and then this file goes."""

from grpo_theory.compiler.function_pointers import FirstClass as FirstClass
from grpo_theory.compiler.function_pointers import FirstClassType as FirstClassType
from grpo_theory.compiler.function_pointers import first_class_value as first_class  # noqa: F401
from grpo_theory.compiler.function_values import FunctionValue as FunctionValue
from grpo_theory.compiler.function_values import function_value as function_value
from grpo_theory.compiler.function_values import value_or_null as wanted  # noqa: F401
