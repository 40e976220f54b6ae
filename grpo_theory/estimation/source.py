"""Files of kernels that travel: with their text and its checksum, a kernel reaches any process."""

import hashlib
import importlib
import importlib.util
import linecache
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

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
    def read(cls, path: Path, module: str | None = None) -> "SourceFile":
        """Read a file; its module is named after it unless a name is given."""
        return cls(module or path.stem, str(path.resolve()), path.read_text(encoding="utf-8"))

    @classmethod
    def of_module(cls, path: Path, module: str) -> "SourceFile":
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
        if known is not None and self._is_text_behind(known):
            return known
        if self.is_text_of(self.path):
            return self._run(Path(self.path))
        try:
            found = importlib.util.find_spec(self.module)
        except (ImportError, ValueError):
            found = None
        if found is not None and self.is_text_of(found.origin):
            return importlib.import_module(self.module)
        return self._run(self._copy())

    def hides_module(self) -> bool:
        """Whether another module has the name, installed or imported: run under it, the file would replace that one."""
        if self.module in sys.modules:
            known = sys.modules[self.module]
            return known not in _TEXTS and not self._is_file_of(getattr(known, "__file__", None))
        try:
            found = importlib.util.find_spec(self.module)
        except (ImportError, ValueError):
            return False
        return found is not None and not self._is_file_of(found.origin)

    def _is_file_of(self, path: str | None) -> bool:
        """Whether a file is this one, or a copy of it."""
        return path is not None and (Path(path).resolve() == Path(self.path) or self.is_text_of(path))

    def is_text_of(self, path: str | None) -> bool:
        """Whether a file has this text."""
        try:
            return path is not None and Path(path).read_text(encoding="utf-8") == self.text
        except (OSError, UnicodeDecodeError):
            return False

    def _is_text_behind(self, module: ModuleType) -> bool:
        """Whether a module was run from this text; of one that was not run here, what its file says now has to do."""
        text = _text_behind(module)
        return self.is_text_of(getattr(module, "__file__", None)) if text is None else text == self.text

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

    def _copy(self) -> Path:
        """Write the text to a folder named by its checksum, where numba's cache finds it again, and return its path."""
        owner = os.getuid() if hasattr(os, "getuid") else 0
        folder = Path(tempfile.gettempdir()) / f"grpo_theory-{owner}" / self.checksum
        path = folder / Path(self.path).name
        if not self.is_text_of(str(path)):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_text(self.text, encoding="utf-8")
            temporary.replace(path)
        return path


def _text_behind(module: ModuleType | None) -> str | None:
    """Return the text that a module was run from, or None if nothing is known but its file."""
    return None if module is None else _TEXTS.get(module, _REGISTERED.get(module))
