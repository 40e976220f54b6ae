"""What touches the inside of numba or of LLVM stands in grpo_theory/compiler, and compiling leaves numba as it was found."""

import ast
import gc
import re
import signal
import sys
import threading
import warnings
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import codegen, event
from numba.core.compiler_lock import global_compiler_lock

from grpo_theory.compiler import F1, compile_function
from grpo_theory.compiler.economy import LEVEL, compiling_cheaply, uncached_silently
from grpo_theory.compiler.interrupts import interrupts_deferred

TOP = Path(__file__).resolve().parents[1]
COMPILER = "grpo_theory/compiler"
FACES = ("grpo_theory.compiler", "grpo_theory.compiler.lanes")


def is_type(value):
    """Whether something is one of numba's types, which are its public language of signatures."""
    return isinstance(value, numba.types.Type) or (isinstance(value, type) and issubclass(value, numba.types.Type))


def of_numbas(chain):
    """Return why a chain of names that begins with numba is no type of its, or nothing."""
    value, names = numba, chain[1:]
    if names[:1] == ("types",):
        value, names = numba.types, names[1:]
    if names and is_type(getattr(value, names[0], None)):
        return ""
    return f"{'.'.join(chain)} is no type of numba's"


def chain_of(node):
    """Return the names of a.b.c, or () if it does not begin with a name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        head = chain_of(node.value)
        return (*head, node.attr) if head else ()
    return ()


def imports_wrongly(node):
    """Yield what an import may not name outside of the compiler's subpackage."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top, *rest = alias.name.split(".")
            if top == "llvmlite" or (top == "numba" and (rest or alias.asname)) or alias.name.startswith("grpo_theory.compiler."):
                yield f"imports {alias.name}"
    elif isinstance(node, ast.ImportFrom) and node.module:
        top = node.module.split(".")[0]
        if top == "llvmlite":
            yield f"imports {node.module}"
        elif top == "numba":
            named = [(*node.module.split("."), alias.name) for alias in node.names]
            yield from filter(None, (of_numbas(chain) for chain in named if chain != ("numba", "types")))
        elif node.module.startswith("grpo_theory.compiler") and node.module not in FACES:
            yield f"imports from {node.module}, and not from {' or '.join(FACES)}"


def faults(text):
    """Return what of a module's source belongs in the compiler's subpackage."""
    tree = ast.parse(text)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = [fault for node in ast.walk(tree) for fault in imports_wrongly(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            chain = chain_of(node)
            if chain[:1] in (("numba",), ("types",)) and (chain[0] == "numba" or "from numba import types" in text):
                found += filter(None, [of_numbas(chain if chain[0] == "numba" else ("numba", *chain))])
        elif isinstance(node, ast.Name) and node.id == "numba" and id(node) not in inner:
            found.append("hands numba on")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("NUMBA_"):
            found.append(f"names {node.value}")
    return found


SOURCES = [path for folder in ("grpo_theory", "simulations", "paper_figures") for path in sorted((TOP / folder).rglob("*.py"))]


def test_nobody_else_touches_the_inside_of_numba():
    elsewhere = {path: path.read_text(encoding="utf-8") for path in SOURCES if COMPILER not in path.as_posix()}
    assert sum("import numba" in text or "from numba" in text for text in elsewhere.values()) > 20, "sources are not read"
    assert {str(path): found for path, text in elsewhere.items() if (found := faults(text))} == {}


INSIDE = [
    "from numba.core import cgutils",
    "from numba import njit",
    "import numba.core.types",
    "import numba as nb",
    "from llvmlite import ir",
    "import numba\nnumba.config.OPT = 3",
    "import numba\nvars(numba)['config']",
    "from numba import types\ntypes.abstract",
    "import os\nos.environ['NUMBA_OPT'] = '0'",
    "import grpo_theory.compiler.cache",
]
PUBLIC = [
    "import numba\nS = numba.void(numba.float64[::1], numba.int64, numba.types.Array(numba.int32, 2, 'C'))",
    "from numba import float64, types\nS = types.void(types.UniTuple(types.float64, 2))",
    "from grpo_theory.compiler import F1, stage\nfrom grpo_theory.compiler.lanes import load",
]


def test_what_belongs_there_is_told_and_types_are_for_all():
    assert [text for text in INSIDE if not faults(text)] == []
    assert [text for text in PUBLIC if faults(text)] == []


def test_numba_has_an_upper_bound_and_the_installed_one_is_below_it():
    """Each version of numba has changed names that the subpackage uses; one that was not tried must not be installed by pip."""
    config = ConfigParser()
    config.read(TOP / "setup.cfg")
    (bounds,) = [one for one in config["options"]["install_requires"].split() if one.startswith("numba")]
    lower, upper = re.fullmatch(r"numba>=([\d.]+),<([\d.]+)", bounds).groups()
    lower, own, upper = (tuple(map(int, version.split(".")[:2])) for version in (lower, numba.__version__, upper))
    assert lower <= own < upper
    assert upper[1] - max(own[1], 68) <= 1, "the bound allows versions that were never tried"


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


def does_not_compile(array):
    array.append(object())


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


@pytest.mark.compiled
def test_a_function_that_does_not_compile_leaves_numba_as_it_was(as_found):
    with pytest.raises(numba.TypingError):
        compile_function(does_not_compile, SIGNATURE)


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("context", [compiling_cheaply, uncached_silently, interrupts_deferred])
def test_an_exception_leaves_numba_as_it_was(as_found, context, error):
    with pytest.raises(error), context():
        raise error


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
def test_two_threads_that_compile_leave_numba_as_it_was(as_found):
    """Each would restore what the other has set, if they did not wait for each other."""
    failed, start = [], threading.Barrier(3)

    def work(number):
        try:
            start.wait()
            for i in range(3):
                compile_function(typed(f"lambda array: {number + i}.0"), numba.float64(F1))
        except BaseException as error:
            failed.append(error)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work, args=(10 * number,)) for number in range(3)]
    try:
        for thread in threads:
            thread.start()
    finally:
        for thread in threads:
            thread.join()
        sys.setswitchinterval(switch)
    assert failed == []


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
