"""Numba's cache: a second process starts compiled, edits are noticed, near and far; a kernel typed at a prompt needs no cache."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

KERNEL = """
import grpo_theory as gt

@gt.estimator("halfway")
def halfway(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - 0.5
"""

USE = """
import json, time
import grpo_theory as gt
from grpo_theory.exact.multisets import add_moments, class_advantages
from grpo_theory.exact.score_moments import compiled_fill_gains
from grpo_theory.exact.derivatives import fill_objectives
from grpo_theory.simulate.covector.contrasts import fill_contrasts
from grpo_theory.simulate.draw.counting import fill_counts
from grpo_theory.simulate.observe.errors import fill_errors_by_pairs

problem = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, 0.7]
names = ["halfway", "rloo"]
start = time.perf_counter()
exact = [gt.gradient_mse(*problem, name, batch_size=2, group_size=4) for name in names]
run = gt.simulate_gradients(*problem, names, batch_size=2, group_size=4, replications=100, rng=0, workers=1)
seconds = time.perf_counter() - start
compiled = [gt.estimators()[name].advantage.kernel for name in names]
compiled += [one.dispatcher for one in (add_moments, class_advantages, fill_objectives)]
drivers = [one.run for one in (fill_counts, fill_contrasts, fill_errors_by_pairs)]
compiled += [compiled_fill_gains(), *(driver.dispatcher for driver in drivers)]
print(json.dumps({
    "exact": exact,
    "simulated": run.mse.tolist(),
    "seconds": seconds,
    "hits": [sum(d.stats.cache_hits.values()) for d in compiled],
    "misses": [sum(d.stats.cache_misses.values()) for d in compiled],
}))
"""

SIGNATURES = [1] * 9
"""How many each compiled function has."""


class Workshop:
    """A folder with a user's script, and a cache of its own or another's."""

    def __init__(self, folder, cache=None):
        self.folder = folder
        self.cache = cache or folder / "cache"
        # What is tried is the cache and not the machine code, which takes a quarter less time to make if it may be slower.
        self.environment = {**os.environ, "NUMBA_CACHE_DIR": str(self.cache), "NUMBA_OPT": "1"}
        (folder / "own_kernel.py").write_text(KERNEL)
        (folder / "use.py").write_text("import own_kernel\n" + USE)

    def run(self, *arguments, text=None):
        command = [sys.executable, "-W", "error", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return json.loads(done.stdout)

    def machine_code(self):
        return {path.name: path.stat().st_mtime_ns for path in self.cache.rglob("*.nbc")}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="module")
def first(workshop):
    return workshop.run("use.py")


def test_the_second_process_starts_compiled(workshop, first):
    before = workshop.machine_code()
    second = workshop.run("use.py")
    assert second["hits"] == SIGNATURES
    assert second["misses"] == [0] * len(SIGNATURES)
    assert workshop.machine_code() == before
    assert second["exact"] == first["exact"]
    assert second["simulated"] == first["simulated"]
    assert second["seconds"] < first["seconds"] / 3


def test_an_edited_kernel_is_compiled_anew(workshop, first):
    other = workshop.folder / "edited"
    other.mkdir()
    shop = Workshop(other, workshop.cache)
    shop.run("use.py")
    (other / "own_kernel.py").write_text(KERNEL.replace("- 0.5", "- 0.250"))
    edited = shop.run("use.py")
    assert edited["misses"] == [SIGNATURES[0], *[0] * (len(SIGNATURES) - 1)]
    assert edited["exact"][0] != first["exact"][0]
    assert edited["exact"][1] == first["exact"][1]


FAR = """
import numba

@numba.njit
def half(z):
    return z - 0.5
"""

HELPERS = """
import numba
import numpy as np
from far import half

RATE = 0.5
TABLE = np.array([0.25, 0.5])

@numba.njit
def baseline(z):
    return 1.0 * half(z)
"""

IMPORTING = """
import grpo_theory as gt
{imported}

@gt.estimator("{name}")
def {name}(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            z = batch.rewards[b, g]
            advantages[b, g] = {formula}
"""

WAYS = {
    "function": ("from helpers import baseline", "baseline(z)"),
    "dotted": ("import helpers", "helpers.baseline(z)"),
    "constant": ("from helpers import RATE", "z - RATE"),
    "dotted_constant": ("import helpers", "z - helpers.RATE"),
    "table": ("from helpers import TABLE", "z - TABLE[1]"),
    "alone": ("", "z - 0.5"),
}
"""How a kernel may come by what another file says."""

USE_ALL = """
import importlib, json
import grpo_theory as gt

problem = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, 0.7]
found = {}
for name in %r:
    kernel = getattr(importlib.import_module(f"kernel_{name}"), name)
    error = gt.gradient_mse(*problem, kernel, batch_size=2, group_size=4)
    found[name] = error, sum(kernel.advantage.kernel.stats.cache_misses.values())
print(json.dumps(found))
"""


def test_an_edit_in_an_imported_file_is_noticed(tmp_path, workshop, first):
    """What numba alone would miss: machine code of a kernel is old when a file that it takes a number from has changed."""
    shop = Workshop(tmp_path, workshop.cache)
    for name, (imported, formula) in WAYS.items():
        (tmp_path / f"kernel_{name}.py").write_text(IMPORTING.format(name=name, imported=imported, formula=formula))
    (tmp_path / "far.py").write_text(FAR)
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "use.py").write_text(USE_ALL % list(WAYS))
    every, calling, reading = set(WAYS), {"function", "dotted"}, {"constant", "dotted_constant", "table"}

    def run():
        found = shop.run("use.py")
        return {name: error for name, (error, _) in found.items()}, {name for name, (_, misses) in found.items() if misses}

    errors, compiled = run()
    assert compiled == every
    assert set(errors.values()) == {errors["alone"]}
    # That nothing is compiled again without an edit is seen of some kernels at each of the next runs, and of all at the last.
    (tmp_path / "far.py").write_text(FAR.replace("0.5", "0.125"))
    edited, compiled = run()
    assert compiled == calling
    assert {name for name in WAYS if edited[name] != errors[name]} == calling
    (tmp_path / "helpers.py").write_text(HELPERS.replace("0.5", "0.125"))
    edited, compiled = run()
    assert compiled == calling | reading
    assert {name for name in WAYS if edited[name] != errors[name]} == calling | reading
    assert edited["constant"] == edited["dotted"] == edited["table"]
    assert run() == (edited, set())


REACHED = """
import enum
import numba
import numpy as np
from numba.extending import overload, register_jitable
from rates import RATE

TEXT = bytes([int(8.0 * RATE)])
TABLES = (np.where(np.arange(4000) == 2000, RATE, 0.0), 1)

class Rate(enum.Enum):
    SHARE = RATE

@numba.vectorize
def loop(z):
    return z - RATE

@numba.vectorize(cache=True)
def kept_loop(z):
    return z - RATE

def overloaded(z):
    return z - RATE

@overload(overloaded)
def overload_it(z):
    def implementation(z):
        return z - RATE
    return implementation

@register_jitable
def jitable(z):
    return z - RATE

@numba.njit(cache=True)
def kept(z):
    return z - RATE

@numba.njit("float64(float64)", cache=True)
def kept_at_once(z):
    return z - RATE

@numba.njit
def by_default(z, rate=RATE):
    return z - rate
"""

REACHES = {
    "alone": ("from rates import RATE", "z - RATE"),
    "vectorized": ("from reached import loop", "loop(z)"),
    "kept_and_vectorized": ("from reached import kept_loop", "kept_loop(z)"),
    "by_overload": ("from reached import overloaded", "overloaded(z)"),
    "by_jitable": ("import reached", "reached.jitable(z)"),
    "with_cache": ("from reached import kept", "kept(z)"),
    "cached_at_once": ("from reached import kept_at_once", "kept_at_once(z)"),
    "with_default": ("from reached import by_default", "by_default(z)"),
    "enumerated": ("from reached import Rate", "z - Rate.SHARE.value"),
    "written": ("from reached import TEXT", "z - TEXT[0] / 8.0"),
    "tables": ("from reached import TABLES", "z - TABLES[0][2000]"),
}
"""How a kernel may come by a number of a third file, besides by its name."""

USE_REACHED = """
import importlib, json
import grpo_theory as gt
from grpo_theory.harness.store import estimator_fingerprint

problem = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, 0.7]
found = {}
for name in %r:
    kernel = getattr(importlib.import_module(f"kernel_{name}"), name)
    error = gt.gradient_mse(*problem, kernel, batch_size=2, group_size=4)
    found[name] = error, estimator_fingerprint(kernel), sum(kernel.advantage.kernel.stats.cache_misses.values())
print(json.dumps(found))
"""


def test_whatever_a_kernel_reaches_makes_it_old(tmp_path, workshop, first):
    """Machine code in the next process, and chunks, by one and the same list of what a kernel relies on."""
    shop = Workshop(tmp_path, workshop.cache)
    for name, (imported, formula) in REACHES.items():
        (tmp_path / f"kernel_{name}.py").write_text(IMPORTING.format(name=name, imported=imported, formula=formula))
    (tmp_path / "reached.py").write_text(REACHED)
    (tmp_path / "use.py").write_text(USE_REACHED % list(REACHES))
    shop.environment["PYTHONPATH"] = str(ROOT)
    runs = []
    for rate in (0.5, 0.125, 0.125, 0.5):
        (tmp_path / "rates.py").write_text(f"RATE = {rate}\n")
        runs.append(shop.run("use.py"))
    errors, prints, misses = ([{name: facts[i] for name, facts in run.items()} for run in runs] for i in range(3))
    for run in errors:
        assert run == pytest.approx(dict.fromkeys(REACHES, run["alone"]), rel=1e-12)
    assert errors[0]["alone"] != errors[1]["alone"]
    assert {name for name in REACHES if prints[0][name] == prints[1][name]} == set()
    assert prints[1] == prints[2]
    assert prints[0] == prints[3]
    assert [set(run.values()) for run in misses] == [{1}, {1}, {0}, {1}]


DAMAGES = {
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "one bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
}


@pytest.mark.parametrize(("suffix", "damage"), [("nbc", "cut short"), ("nbc", "one bit"), ("nbi", "empty")])
def test_a_damaged_file_of_machine_code_is_deleted_and_made_again(tmp_path, suffix, damage):
    shop = Workshop(tmp_path)
    script = "import grpo_theory as gt\nprint(gt.estimators()['rloo'].advantage.kernel.stats.cache_misses.total())\n"
    asked = [sys.executable, "-c", script]

    def run():
        return subprocess.run(asked, cwd=ROOT, env=shop.environment, capture_output=True, text=True, check=False)

    assert run().stdout == "1\n"
    sound = run()
    assert (sound.stdout, sound.stderr) == ("0\n", "")
    (path,) = shop.cache.rglob(f"named.rloo-*.{suffix}")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    mended = run()
    assert (mended.returncode, mended.stdout) == (0, "1\n"), mended.stderr
    assert f"DamagedCacheWarning: the file {path} of compiled code was damaged" in mended.stderr
    after = run()
    assert (after.stdout, after.stderr) == ("0\n", "")


LARGE = """
import numpy as np
import grpo_theory as gt

table = np.ones(200_000)

@gt.estimator("of_a_table")
def of_a_table(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] * table[g]

problem = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, 0.7]
sizes = {"batch_size": 2, "group_size": 4}
exact = [gt.gradient_mse(*problem, name, **sizes) for name in ("of_a_table", "rloo")]
print(exact + gt.simulate_gradients(*problem, ["rloo"], replications=8, rng=0, workers=1, **sizes).mse.tolist())
"""


def test_what_cannot_be_kept_on_disk_is_compiled_without_a_word(tmp_path, workshop):
    """numba warns of a large array that a kernel names, and of all functions with NUMBA_OPT=0; warnings are errors here."""
    kept, slow = Workshop(tmp_path, workshop.cache), Workshop(tmp_path)
    slow.environment["NUMBA_OPT"] = "0"
    (tmp_path / "large.py").write_text(LARGE)
    assert slow.run("large.py") == pytest.approx(kept.run("large.py"), rel=1e-10)
    assert not any("of_a_table" in name for shop in (kept, slow) for name in shop.machine_code())
