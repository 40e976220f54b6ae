"""The public face: names, documentation, signatures that can be read, and an import that loads and compiles nothing."""

import ast
import doctest
import inspect
import io
import pkgutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import grpo_theory as gt
from grpo_theory.simulate import draws

ROOT = Path(gt.__file__).parent
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages([str(ROOT)], "grpo_theory.")
    if not found.name.rsplit(".", 1)[-1].startswith("_")
)
STUB = ast.parse((ROOT / "__init__.pyi").read_text())
OFFERED = [(node.module, alias) for node in STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names]
ROOMS = [alias.name for module, alias in OFFERED if module is None]


def run(source):
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_what_the_stub_lists_is_offered():
    """`dir(gt)`, `from grpo_theory import *` and a type checker see the same names, and each of them is there."""
    names = [alias.asname for _, alias in OFFERED]
    assert all(alias.asname == alias.name for _, alias in OFFERED), "a checker sees only what is imported as itself"
    assert len(names) == len(set(names)) >= 60
    assert set(names) == set(gt.__all__) == {name for name in dir(gt) if not name.startswith("_")}
    for module, alias in OFFERED:
        room = import_module(f"grpo_theory{f'.{module}' if module else ''}")
        assert getattr(gt, alias.name) is getattr(room, alias.name)
    assert len(ROOMS) >= 10
    assert all(inspect.ismodule(getattr(gt, room)) for room in ROOMS)
    for room in (*(getattr(gt, room) for room in ROOMS), gt.gallery, import_module("grpo_theory.problem")):
        assert {name for name in dir(room) if not name.startswith("__")} == set(room.__all__), room.__name__
        assert all(hasattr(room, name) for name in room.__all__)
        # lazy-loader 0.4 gives the module, and not the function of its name, once anything has imported that module.
        files = {name for name in room.__all__ if f"{room.__name__}.{name}" in MODULES}
        assert all(inspect.ismodule(getattr(room, name)) for name in files), room.__name__
    with pytest.raises(AttributeError, match="grpo_theory attribute rlhf"):
        _ = gt.rlhf


class Terminal(io.StringIO):
    """A terminal that keeps what it shows."""

    def isatty(self):
        return True


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_shows_on_a_terminal_what_takes_longer_even_before_anything_is_done(monkeypatch, workers):
    monkeypatch.setattr(draws, "PATIENCE", 0.05)
    for seconds, stream in ((0.0, Terminal()), (0.15, io.StringIO()), (0.15, Terminal())):
        monkeypatch.setattr(sys, "stderr", stream)
        done = draws.map_in_order(lambda job, wait=seconds: time.sleep(wait) or job, "ab", workers, "working")
        assert list(done) == ["a", "b"]
        shown = stream.getvalue()
        assert ("working:   0%" in shown) == ("0/2" in shown) == (seconds > 0.0 and stream.isatty())


def test_progress_is_one_argument():
    calls = [gt.simulate_gradients, gt.simulate_training, gt.coverage, gt.sketch]
    calls += [gt.laboratory.coverage_of_several, gt.laboratory.coverage_grid]
    parameters = [inspect.signature(one, eval_str=True).parameters["progress"] for one in calls]
    assert {(one.annotation, one.default) for one in parameters} == {(bool, True)}


def test_importing_builds_no_room_compiles_nothing_and_loads_no_plots_tables_or_statistics():
    script = f"""
import sys
from importlib import import_module
from pkgutil import walk_packages
import grpo_theory as gt
heavy = ("numba", "matplotlib", "seaborn", "pandas", "statsmodels", "scipy.stats", "scipy.optimize")
rooms = [f"grpo_theory.{{name}}" for name in {ROOMS!r}]
print(*[name for name in (*heavy, *rooms) if name in sys.modules])
import grpo_theory.jit
import numba.core.dispatcher as d
compiled = []
compile_ = d.Dispatcher.compile
d.Dispatcher.compile = lambda self, *a: (compiled.append(str(self.py_func)), compile_(self, *a))[1]
from grpo_theory import Constant, gallery, simulate_gradients, simulate_training
print(*[name for name in ("scipy.optimize", "scipy.stats", "pandas") if name in sys.modules])
for package in ("grpo_theory", "simulations"):
    for found in walk_packages(import_module(package).__path__, f"{{package}}."):
        import_module(found.name)
print(len(compiled), "scipy.stats" in sys.modules)
gt.gradient_mse(gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, 0.0], "rloo", batch_size=1, group_size=2)
print(len(compiled) >= 2)
"""
    assert run(script) == ["0", "False", "True"], "nothing is compiled, and no module loads the distributions"


def test_examples_in_docstrings_run(registry):
    results = [doctest.testmod(import_module(name)) for name in MODULES]
    plt.close("all")  # some draw; to close figures on a change of backend is deprecated in old Matplotlib
    assert sum(result.attempted for result in results) >= 2
    assert sum(result.failed for result in results) == 0
