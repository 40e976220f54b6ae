"""What touches the inside of numba or of LLVM stands in grpo_theory/compiler, and compiling leaves numba as it was found."""

import gc
import signal
import threading
import warnings
from contextlib import contextmanager

import numba
import numpy as np
import pytest
from numba.core import codegen, event
from numba.core.compiler_lock import global_compiler_lock

from grpo_theory.compiler import F1, compile_function
from grpo_theory.compiler.economy import LEVEL, compiling_cheaply, uncached_silently
from grpo_theory.compiler.interrupts import interrupts_deferred


class Found:
    """What of numba, of the collector and of warnings compiling might leave changed."""

    def __init__(self):
        self.config = {name: value for name, value in vars(numba.config).items() if name.isupper()}
        self.builder = getattr(codegen, "create_pass_builder", None)  # numba has one from 0.62 on
        self.collects = gc.isenabled()
        self.filters = list(warnings.filters)
        self.handler = signal.getsignal(signal.SIGINT)

    def __eq__(self, other):
        return all(
            one is another if not isinstance(one, dict | list) else one == another
            for one, another in zip(vars(self).values(), vars(other).values(), strict=True)
        )

    __hash__ = None


def typed(text):
    """Return a function without a file, which no cache keeps: it is compiled in every run of the tests."""
    return eval(compile(text, "<typed>", "eval"))


SIGNATURE = numba.void(F1)


@contextmanager
def each_pass(ask):
    """Collect what is so at the beginning of every pass of numba's compiler."""

    class Asking(event.Listener):
        def on_start(self, event):
            seen.append(ask())

        def on_end(self, event):
            pass

    seen = []
    with event.install_listener("numba:run_pass", Asking()):
        yield seen


@pytest.fixture
def as_found():
    """Fail unless everything is at the end of a test as it was at its beginning."""
    before = Found()
    yield before
    assert Found() == before
    assert not global_compiler_lock.is_locked()


@pytest.mark.compiled
def test_compiling_leaves_numba_as_it_was(as_found):
    array = np.zeros(3)
    with each_pass(lambda: (int(vars(numba.config)["OPT"]), gc.isenabled())) as seen:
        compile_function(typed("lambda array: array.fill(1.0)"), SIGNATURE)(array)
    np.testing.assert_array_equal(array, 1.0)
    assert len(seen) > 5, "nothing was compiled"
    assert set(seen) == {(min(int(as_found.config["OPT"]), LEVEL), False)}


@pytest.mark.parametrize("context", [compiling_cheaply, uncached_silently, interrupts_deferred])
def test_an_exception_leaves_numba_as_it_was(as_found, context):
    with pytest.raises(KeyboardInterrupt), context():
        raise KeyboardInterrupt


@pytest.mark.compiled
def test_an_interrupt_while_it_compiles_comes_afterwards_and_leaves_numba_as_it_was(as_found):
    """An exception inside a callback of the compiler would be lost, and would leave half of the passes undone."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), each_pass(lambda: signal.raise_signal(signal.SIGINT)) as passes:
            compile_function(typed("lambda array: None"), SIGNATURE)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, handler)
    assert len(passes) > 5, "it was interrupted before it was done"


@pytest.mark.compiled
def test_others_compile_with_their_own_options_meanwhile(as_found):
    """A function of a user's own that is compiled in another thread waits, and gets numba's level and passes."""
    inside = threading.Event()

    def others():
        inside.wait()
        numba.njit(numba.float64(numba.float64))(lambda x: 2.0 * x)

    thread = threading.Thread(target=others)
    with each_pass(lambda: (int(vars(numba.config)["OPT"]), getattr(codegen, "create_pass_builder", None))) as seen:
        thread.start()
        with compiling_cheaply():
            inside.set()
            thread.join(0.2)
            assert thread.is_alive()
            assert seen == []
        thread.join()
    assert set(seen) == {(int(as_found.config["OPT"]), as_found.builder)}
