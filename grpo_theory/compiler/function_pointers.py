"""Compiled functions as values that drivers take: one machine code of a driver serves every function of a signature.

Of numba and llvmlite these parts are used:

* `numba.extending`: `register_model`, `models`, `unbox`, `NativeValue`, `typeof_impl`
* `numba.core.imputils`: `lower_builtin`
* `numba.core.cgutils`
* `numba.core.typing.templates`: `signature`
* the methods of `types.Callable`, and a context's `call_conv`
* of what was compiled, `library` and `fndesc`
* `llvmlite.ir`
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import signature
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox

from grpo_theory.compiler.options import WITHOUT_COMPILER


class FirstClass:
    """A compiled function as a value that drivers take: where its machine code begins.

    numba has such values of its own. Handing one over takes several microseconds, and every call is compiled with three ways of
    calling it.

    Attributes
    ----------
    address : int
        0 if there is none, because the function is not needed; to call it is an error.
    type : FirstClassType
    """

    def __init__(self, kind: "FirstClassType", dispatcher: Any = None) -> None:
        self.type, self.dispatcher, self.address = kind, dispatcher, 0
        if dispatcher is not None:
            made = dispatcher.overloads[kind.signature.args]
            self.address = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return self.dispatcher(*arguments)

    def __reduce__(self) -> Any:
        """Raise, because an address means nothing in another process."""
        raise TypeError("a compiled function as a value cannot be pickled: pickle the FunctionValue that it is the value of")


class FirstClassType(types.Callable):
    """The type of first-class functions with one signature."""

    def __init__(self, sig: Any) -> None:
        self.signature = sig
        super().__init__(f"FirstClass({sig})")

    def get_call_type(self, context: Any, arguments: Any, keywords: Any) -> Any:
        """Return the signature if the arguments fit it."""
        sig = self.signature
        fits = not keywords and len(arguments) == len(sig.args)
        if fits and all(context.can_convert(*pair) is not None for pair in zip(arguments, sig.args, strict=True)):
            # Because of the receiver, numba hands the value that is called to `_call_first_class`, before the arguments.
            return signature(sig.return_type, *sig.args, recvr=self)
        return None

    def get_call_signatures(self) -> tuple[list[Any], bool]:
        """Return the one signature."""
        return [self.signature], False

    def get_impl_key(self, sig: Any) -> type:
        """Return what the call of any of them is registered for."""
        return FirstClassType


@register_model(FirstClassType)
class _FirstClassModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: FirstClassType) -> None:
        super().__init__(manager, kind, ir.IntType(64))


typeof_impl.register(FirstClass)(lambda value, context: value.type)


@unbox(FirstClassType)
def _unbox_first_class(kind: FirstClassType, value: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_longlong(number)
    c.pyapi.decref(number)
    return NativeValue(address)


@lower_builtin(FirstClassType, FirstClassType, types.VarArg(types.Any))
def _call_first_class(context: Any, builder: Any, sig: Any, values: Any) -> Any:
    (_, *kinds), (address, *arguments) = sig.args, values
    with cgutils.if_unlikely(builder, builder.icmp_unsigned("==", address, ir.Constant(address.type, 0))):
        context.call_conv.return_user_exc(builder, RuntimeError, ("a function is called that was said not to be needed",))
    # The address is that of a function by numba's own convention, without a wrapper: it returns a status beside the value.
    convention = context.call_conv
    function = builder.inttoptr(address, convention.get_function_type(sig.return_type, kinds).as_pointer())
    status, found = convention.call_function(builder, function, sig.return_type, kinds, arguments)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
    return found


def first_class_value(dispatcher: Any, sig: Any) -> Any:
    """Return the compiled function with this signature as a value that a driver takes."""
    return dispatcher if WITHOUT_COMPILER else FirstClass(FirstClassType(sig), dispatcher)
