"""The contract of an advantage kernel: what it may read, its one compiled signature, and the file that it comes from."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from grpo_theory.estimation.code import drawing
from grpo_theory.jit import compiled, kernel, types
from grpo_theory.validation import Array, Integers, read_only

NO_MEMORY = read_only(np.empty((0, 0)))
"""What a kernel finds in ``batch.memory`` where nothing is remembered."""


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
    log_probabilities : ndarray, shape (B, G)
        log pi(response | prompt) of the policy that sampled.
    values : ndarray, shape (B,)
        The prompt's true value V(x) = E[Z | x] under the policy that sampled (for oracles).
    standard_deviations : ndarray, shape (B,)
        The prompt's true standard deviation of the reward (for oracles).
    optimal_baselines : ndarray, shape (B,)
        The prompt's b*(x) = E[||W||^2 Z | x] / E[||W||^2 | x] (for oracles).
    parameters : ndarray, shape (P,)
        The estimator's own parameters, in the order in which it declares them.
    memory : ndarray, shape (B, S)
        What the estimator remembered of the prompt before this rollout, see `Memory`; of shape (0, 0) if it remembers nothing.

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
    log_probabilities: Array
    values: Array
    standard_deviations: Array
    optimal_baselines: Array
    parameters: Array
    memory: Array = NO_MEMORY


_DEFERRED = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
RESPONSE_FIELDS = ("rewards", "squared_score_norms", "lengths", "log_probabilities")
PROMPT_FIELDS = ("values", "standard_deviations", "optimal_baselines")
FIELDS = RESPONSE_FIELDS + PROMPT_FIELDS


_TABLE, _VECTOR = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (2, 1))
_LENGTHS = types.Array(types.int64, 2, "C", readonly=True)
SIGNATURE = types.void(types.NamedTuple((_TABLE, _TABLE, _LENGTHS, _TABLE, *[_VECTOR] * 4, _TABLE), Batch), types.float64[:, ::1])
"""Nobody may write on a batch, because it is shared by all the kernels that see it."""

CONTRACT = (
    "a kernel is kernel(batch, advantages): it reads batch."
    + ", batch.".join(Batch._fields)
    + ", writes on none of them, and fills advantages (B, G) in place; it draws nothing and returns nothing"
)
_REMEMBER = "a memory's function is remember(memory, rewards, parameters): it turns memory (S,) into the next in place"
REMEMBERS = types.void(types.float64[::1], _VECTOR, _VECTOR), _REMEMBER
"""Signature and contract of the function of a `Memory`."""


def read_only_batch(fields: Iterable[np.ndarray], parameters: Array) -> Batch:
    """Return a batch of `FIELDS`, after which come S columns of memory, and parameters, none of which can be written on."""
    given = [*fields]
    own, columns = given[: len(FIELDS)], given[len(FIELDS) :]
    memory = np.stack(columns, axis=1) if columns else NO_MEMORY
    views = [np.ascontiguousarray(field).view() for field in (*own, parameters, memory)]
    for view in views:
        view.setflags(write=False)
    return Batch._make(views)


@cache
def compile_kernel(function: Callable, signature: Any = SIGNATURE, contract: str = CONTRACT) -> Any:
    """Compile a kernel, or what a memory does, to its one fixed signature, or say in the contract's words why it cannot be.

    Raises
    ------
    TypeError
        If the function does not compile, as where it writes on the batch; the message names the documented arguments.
    """
    if (draws := drawing(function)) is not None:
        raise TypeError(f"the kernel {function.__qualname__!r} draws random numbers, by {draws}; {contract}")
    try:
        # What is remembered may be an index, of which nobody knows in time that it leaves an array; None is numba's own choice.
        return compiled(function, signature, boundscheck=signature is not SIGNATURE or None)
    except Exception as error:  # numba raises more than its own errors for what it cannot compile
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [
            line.partition("Error: ")[2] or line for line in lines if not re.match(r"(- )?(Failed in|Resolution|File )", line)
        ]
        reason = next((line for line in told if not line.endswith("Error:")), type(error).__name__).rstrip(". ")
        marked = next((line for line, mark in pairwise(lines) if mark == "^"), "")
        reason = re.sub(r" of type Batch\(.*", "", reason) + (f", in `{marked}`" if marked else "")
        raise TypeError(f"the kernel {function.__qualname__!r} does not compile: {reason}; {contract}") from None


def check_arguments(function: Callable, number: int = 2, contract: str = CONTRACT) -> None:
    """Raise unless the function takes so many positional arguments."""
    if not callable(function):
        raise TypeError(f"the kernel must be a Python function, got {function!r}; {contract}")
    if inspect.isfunction(function) and function.__code__.co_flags & _DEFERRED:
        raise TypeError(f"the kernel {function.__qualname__!r} must run when it is called, not be async or yield; {contract}")
    taken = inspect.signature(function, follow_wrapped=False).parameters.values() if inspect.isfunction(function) else ()
    positional = [p for p in taken if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not len(taken) == len(positional) == number:
        raise TypeError(f"the kernel {function!r} must be a plain function of {number} arguments; {contract}")


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
        return everything  # a lambda, say
    batch = (definition.args.posonlyargs + definition.args.args)[0].arg
    attributes = [node for node in ast.walk(definition) if isinstance(node, ast.Attribute)]
    named = [node for node in attributes if isinstance(node.value, ast.Name) and node.value.id == batch]
    mentions = [node for node in ast.walk(definition) if isinstance(node, ast.Name) and node.id == batch]
    fields = frozenset(node.attr for node in named)
    return fields if len(mentions) == len(named) and fields <= everything else everything


_TEXTS: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""What the modules were run from that this process has run."""
_REGISTERED: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()
"""What the files of modules said when a kernel of theirs was registered: they may be edited later."""


def remember_text(function: Callable) -> None:
    """Remember what the file of a function says, as Python has just read it for the function's source."""
    module, lines = sys.modules.get(function.__module__), linecache.cache.get(function.__code__.co_filename)
    if module is not None and lines is not None and len(lines) > 2:
        _REGISTERED[module] = "".join(lines[2])


@dataclass(frozen=True)
class SourceFile:
    """A Python file that registers estimators, ready to be sent to another process.

    Attributes
    ----------
    module : str
        The name by which the module is imported.
    path : str
        Where the file lies on the machine that read it.
    text : str
        What is in it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from grpo_theory.estimation import SourceFile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "example_kernels_of_mine.py"
    ...     _ = path.write_text("HALF = 0.5")
    ...     source = SourceFile.read(path)
    ...     print(source.module, source.is_text_of(path), source.hides_module(), source.load().HALF)
    example_kernels_of_mine True False 0.5
    >>> SourceFile.of_module(Path(source.path), source.module).text == source.text
    True
    """

    module: str
    path: str
    text: str

    @classmethod
    def read(cls, path: Path, module: str | None = None) -> SourceFile:
        """Read a file; its module is named after it unless a name is given."""
        return cls(module or path.stem, str(path.resolve()), path.read_text(encoding="utf-8"))

    @classmethod
    def of_module(cls, path: Path, module: str) -> SourceFile:
        """Return the file of a module, with the text that the module was run from if that is known, and else as it is now."""
        text = _text_behind(sys.modules.get(module))
        return cls.read(path, module) if text is None else cls(module, str(path.resolve()), text)

    @cached_property
    def checksum(self) -> str:
        """The SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def load(self) -> ModuleType:
        """Run the file as its module, unless this process has it already, and return the module.

        The file itself is run if it exists and has this text. Otherwise an installed module is imported if it has this text, and
        if none has, a copy of the text is run. A module that was run from an older text is run anew, even if its file has this
        text by now.
        """
        known = sys.modules.get(self.module)
        if known is not None:
            text = _text_behind(known)
            # Of a module that was not run here, what its file says now has to do.
            if self.is_text_of(getattr(known, "__file__", None)) if text is None else text == self.text:
                return known
        if self.is_text_of(self.path):
            return self._run(Path(self.path))
        if self.is_text_of(_file_of(self.module)):
            return importlib.import_module(self.module)
        # The copy lies in a folder named by its checksum, where numba's cache finds it again.
        owner = os.getuid() if hasattr(os, "getuid") else 0
        path = Path(tempfile.gettempdir()) / f"grpo_theory-{owner}" / self.checksum / Path(self.path).name
        if not self.is_text_of(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_text(self.text, encoding="utf-8")
            temporary.replace(path)
        return self._run(path)

    def hides_module(self) -> bool:
        """Whether another module has the name, installed or imported: run under it, the file would replace that one."""
        known = sys.modules.get(self.module)
        if known in _TEXTS:
            return False
        path = _file_of(self.module) if known is None else getattr(known, "__file__", None)
        if path is None:
            return known is not None
        return Path(path).resolve() != Path(self.path) and not self.is_text_of(path)

    def is_text_of(self, path: str | None) -> bool:
        """Whether a file has this text."""
        try:
            return path is not None and Path(path).read_text(encoding="utf-8") == self.text
        except (OSError, UnicodeDecodeError):
            return False

    def _run(self, path: Path) -> ModuleType:
        """Run the text as a module of that file; the byte code that lies beside the file may be of an older text."""
        spec = importlib.util.spec_from_file_location(self.module, path)
        if spec is None:
            raise ImportError(f"{path} is not a Python file")
        made = importlib.util.module_from_spec(spec)
        previous = sys.modules.get(self.module)
        sys.modules[self.module] = made
        try:
            exec(compile(self.text, path, "exec"), vars(made))
        except BaseException:
            if previous is None:
                del sys.modules[self.module]
            else:
                sys.modules[self.module] = previous
            raise
        _TEXTS[made] = self.text
        return made


def _file_of(module: str) -> str | None:
    """Return the file of a module that can be imported, or None."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return None if found is None else found.origin or ""  # a folder without __init__.py has none


def _text_behind(module: ModuleType | None) -> str | None:
    """Return the text that a module was run from, or None if nothing is known but its file."""
    return None if module is None else _TEXTS.get(module, _REGISTERED.get(module))


@kernel
def centre(rewards, centred):
    """Fill `centred` (n,) with rewards (n,) less their mean, and return the sum of the squares.

    The first reward is subtracted before the mean is. Equal rewards, 0.1 three times, then leave exactly 0. The rounding error of
    a sum would be divided by a standard deviation of the same size in a kernel that divides.
    """
    first, total = rewards[0], 0.0
    for g in range(rewards.size):
        total += rewards[g] - first
    mean = total / rewards.size
    squares = 0.0
    for g in range(rewards.size):
        centred[g] = (rewards[g] - first) - mean
        squares += centred[g] ** 2
    return squares
