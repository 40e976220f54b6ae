"""The public face: names, floors, documentation, and an import that compiles nothing."""

import ast
import doctest
import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import grpo_theory as gt

ROOT = Path(gt.__file__).parent
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages([str(ROOT)], "grpo_theory.")
    if not found.name.rsplit(".", 1)[-1].startswith("_")
)

# Each floor imports only from the floors before it.
FLOORS = ("validation", "schedule", "problem", "policy", "kl", "estimator", "exact", "theory", "simulate")
FLOORS += ("inference", "data", "gallery")

NAMES = (
    "Bandit",
    "TabularSoftmax",
    "LinearSoftmax",
    "KL",
    "moments",
    "gradient_mse",
    "gradient_mean",
    "gradient_covariance",
    "group_size_law",
    "simulate_gradients",
    "coverage",
    "replay",
    "Pilot",
    "estimator",
    "estimators",
)


def run(source):
    done = subprocess.run([sys.executable, "-W", "error", "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("name", NAMES)
def test_the_fixed_names_are_there(name):
    assert callable(getattr(gt, name))


def test_the_version_is_a_version():
    assert gt.__version__.count(".") == 2
    assert all(part.isdigit() for part in gt.__version__.split("."))


def test_rooms_are_entered_by_name():
    for room in ("data", "gallery", "inference", "theory"):
        assert inspect.ismodule(getattr(gt, room))
        assert getattr(gt, room) is gt.__getattr__(room) is import_module(f"grpo_theory.{room}")
    with pytest.raises(AttributeError, match="module 'grpo_theory' has no attribute 'rlhf'"):
        _ = gt.rlhf


def test_rooms_are_not_built_before_they_are_entered():
    script = """
import sys, grpo_theory as gt
print("grpo_theory.inference" in sys.modules, gt.inference.__name__, "grpo_theory.inference" in sys.modules)
"""
    assert run(script) == ["False", "grpo_theory.inference", "True"]


def test_importing_compiles_nothing_and_loads_no_plots():
    script = """
import numba.core.dispatcher as d
compiled = []
compile_ = d.Dispatcher.compile
d.Dispatcher.compile = lambda self, *a: (compiled.append(str(self.py_func)), compile_(self, *a))[1]
import sys
import grpo_theory as gt
print(len(compiled), *[name in sys.modules for name in ("matplotlib", "seaborn", "pandas", "statsmodels", "scipy.stats")])
gt.gradient_mse(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2), [0.0, 0.0], "rloo", batch_size=1, group_size=2)
print(len(compiled) >= 2)
"""
    assert run(script) == ["0", "False", "False", "False", "False", "False", "True"]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def floor_of(parts):
    assert parts[0] in FLOORS, f"{parts[0]} has no floor: give it one in FLOORS"
    return FLOORS.index(parts[0])


def test_the_street_runs_one_way():
    """No room imports from a floor above its own, nor from the rooms outside the library."""
    seen = 0
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT).with_suffix("").parts
        if place == ("__init__",):
            continue
        for name in imports(path):
            parts = name.split(".")
            assert parts[0] not in ("simulations", "paper_figures", "benchmarks", "tests")
            if parts[0] == "grpo_theory" and len(parts) > 1:
                assert floor_of(parts[1:]) <= floor_of(place), f"{path.name} imports {name}"
                seen += 1
    assert seen > 40


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_is_documented(name):
    module = import_module(name)
    assert module.__doc__
    for label, thing in vars(module).items():
        own = getattr(thing, "__module__", None) == name and not label.startswith("_")
        if own and (inspect.isclass(thing) or inspect.isfunction(thing)):
            assert inspect.getdoc(thing), f"{name}.{label}"


def test_examples_in_docstrings_run(registry):
    results = [doctest.testmod(import_module(name)) for name in MODULES]
    assert sum(result.attempted for result in results) >= 2
    assert sum(result.failed for result in results) == 0


def test_it_ships_types_and_data():
    assert (ROOT / "py.typed").exists()
    assert (ROOT / "data" / "arithmetic.npz").stat().st_size < 5_000_000
