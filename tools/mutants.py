"""Put faults into the code on purpose, one at a time: each must be seen by the tests that are named beside it.

Run from the top folder:  .venv/bin/python tools/mutants.py [--only TEXT] [--workers N]

tests/mutants/ lists the faults as data, one list a room. A fault is a file, a piece of its text that stands there once, what
takes its place, and the tests. The tests are first run on the code as it is, and must pass. A fault that they do not see ends
the program with status 1. The machine code of that first run serves faults in files that hold no kernel. What then seems to
survive is tried once more without it, because a kernel may have read a constant of such a file.

All faults take two cores some 100 minutes. What was seen is kept in .mutants, by a hash of all files, and an interrupted run goes
on where it was.
"""

import argparse
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from grpo_theory.jit import cache_folder

TOP = Path(__file__).resolve().parents[1]
LISTS, KEPT = TOP / "tests" / "mutants", TOP / ".mutants"
LIMIT = 600
"""Seconds after which tests that do not end count as having seen the fault: an endless loop is one."""
FAILED = 1
"""pytest's status where tests have run and failed; another one is a mistake in the list."""


class Mutant(NamedTuple):
    """A fault: `new` in the place of `old` in a file, and the tests that must see it."""

    file: str
    old: str
    new: str
    tests: list[str]

    def applied(self, top: Path) -> str:
        """Return the file's text with the fault, whose old text must stand there once."""
        source = (top / self.file).read_text(encoding="utf-8")
        if source.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.file}: the old text must stand once, and does {source.count(self.old)} times: {self.old}")
        return source.replace(self.old, self.new)


def copy_tree(folder: Path) -> Path:
    """Copy what git tracks, as it stands in the work tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, check=True, text=True).stdout
    for name in listed.split("\0"):
        if name and (TOP / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, target)
    return folder


def run_tests(folder: Path, *asked: str, limit: float | None) -> tuple[int, str]:
    """Run tests in a copy; returns pytest's status, and that of failure if they do not end, and what it said."""
    own = {"NUMBA_CACHE_DIR": str(folder / ".numba"), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-o", f"cache_dir={folder / '.lately'}", *asked]
    try:
        done = subprocess.run(command, cwd=folder, env=os.environ | own, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return FAILED, ""
    return done.returncode, done.stdout


def code_folder(sources: Path) -> str:
    """Return what Numba calls the machine code of a folder of sources; by another name it is made anew."""
    return f"{sources.name}_{hashlib.sha1(str(sources).encode()).hexdigest()}"


def warm_up(folder: Path, first: Path) -> None:
    """Put the machine code of the first run where a copy's processes look for it, which is named by all of its sources."""
    target = cache_folder(folder / "grpo_theory", str(folder / ".numba"))
    for sources in {path.parent for top in ("grpo_theory", "simulations", "tests") for path in (first / top).rglob("*.py")}:
        kept = first / ".warm" / code_folder(sources)
        if kept.is_dir():  # linked, because Numba replaces files and does not write into them
            shutil.copytree(kept, target / code_folder(folder / sources.relative_to(first)), copy_function=os.link)


def is_seen(mutant: Mutant, folder: Path, first: Path) -> bool:
    """Return whether the tests see a fault, which is taken out again."""
    path = folder / mutant.file
    source, before = path.read_text(encoding="utf-8"), path.stat()
    path.write_text(mutant.applied(folder), encoding="utf-8")
    code = first / ".warm" / code_folder((first / mutant.file).parent)
    warms = [False] if any(code.glob(f"{path.stem}.*")) else [True, False]  # whether functions of this file were compiled
    try:
        for warm in warms:
            shutil.rmtree(folder / ".numba", ignore_errors=True)
            if warm:
                warm_up(folder, first)
            status, _ = run_tests(folder, "-x", *mutant.tests, limit=LIMIT)
            if status:
                break
    finally:
        path.write_text(source, encoding="utf-8")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if status not in (0, FAILED, 2) and status > 0:  # as where no test has the name; a process that died has seen the fault
        raise ValueError(f"{mutant.file}: pytest ended with status {status}: are these its tests? {' '.join(mutant.tests)}")
    return status != 0


def main() -> int:
    """Try all faults, or those whose file or text holds a word; returns the exit status."""
    parser = argparse.ArgumentParser(description="Put faults into the code: each must be seen by the tests.")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose file, text or tests hold this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="how many at a time")
    options = parser.parse_args()
    entries = [one for path in sorted(LISTS.glob("*.toml")) for one in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]]
    chosen = [Mutant(**one) for one in entries if options.only in "\n".join((one["file"], one["old"], one["new"], *one["tests"]))]
    for mutant in chosen:
        mutant.applied(TOP)
    if not chosen:
        print(f"no fault holds {options.only!r}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as root:
        folders: queue.Queue[Path] = queue.Queue()
        for number in range(options.workers):
            folders.put(copy_tree(Path(root) / str(number)))
        first = folders.get()
        files = sorted(path for path in first.rglob("*") if path.is_file())
        kept = KEPT / hashlib.sha1(b"".join(path.read_bytes() for path in files)).hexdigest()
        before = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
        tests = dict.fromkeys(test for one in chosen for test in one.tests)
        status, said = run_tests(first, *tests, "-n", str(options.workers), "--dist", "loadfile", limit=None)
        if status == FAILED:  # clocks, say, of tests that ran beside others
            status, said = run_tests(first, *tests, "--last-failed", limit=None)
        if status:
            print(f"{said[-4000:]}\nthe tests must pass on the code as it is, and do not", file=sys.stderr)
            return 2
        for made in (first / ".numba").glob("kernels-*"):
            made.rename(first / ".warm")
        folders.put(first)

        def tried(mutant: Mutant) -> bool:
            name = hashlib.sha1(repr(mutant).encode()).hexdigest()
            if name in before:
                return True
            folder, start = folders.get(), time.perf_counter()
            try:
                seen = is_seen(mutant, folder, first)
            finally:
                folders.put(folder)
            shown = f"{mutant.file}: {mutant.new.strip()[:60]!r}"
            print(f"{'seen' if seen else 'SURVIVED':8s} {time.perf_counter() - start:5.1f} s  {shown}", flush=True)
            if seen:
                KEPT.mkdir(exist_ok=True)
                with kept.open("a", encoding="utf-8") as file:
                    file.write(name + "\n")
            return seen

        with ThreadPoolExecutor(options.workers) as threads:
            seen = list(threads.map(tried, chosen))
    print(f"{sum(seen)} of {len(seen)} faults are seen")
    return 0 if all(seen) else 1


if __name__ == "__main__":
    sys.exit(main())
