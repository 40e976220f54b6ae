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
{imported}

@gt.estimator("{name}")
def {name}(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            z = batch.rewards[b, g]
            advantages[b, g] = {formula}
"""
HALFWAY = KERNEL.format(imported="", name="halfway", formula="z - 0.5")

USE = """
import json, time
import grpo_theory as gt
from grpo_theory.exact.multisets import add_moments
from grpo_theory.simulate.observe.errors import fill_errors_by_pairs

problem = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, 0.7]
names = ["halfway", "rloo"]
start = time.perf_counter()
exact = [gt.gradient_mse(*problem, name, batch_size=2, group_size=4) for name in names]
run = gt.simulate_gradients(*problem, names, batch_size=2, group_size=4, replications=100, rng=0, workers=1)
seconds = time.perf_counter() - start
compiled = [gt.estimators()[name].advantage.kernel for name in names]
compiled += [add_moments.dispatcher, fill_errors_by_pairs.run.dispatcher]
print(json.dumps({
    "numbers": exact + run.mse.tolist(),
    "seconds": seconds,
    "misses": [sum(d.stats.cache_misses.values()) for d in compiled],
}))
"""


class Workshop:
    """A folder with a user's script, and a cache of its own or another's."""

    def __init__(self, folder, cache=None):
        self.folder = folder
        self.cache = cache or folder / "cache"
        # What is tried is the cache and not the machine code, which takes a quarter less time to make if it may be slower.
        self.environment = {**os.environ, "NUMBA_CACHE_DIR": str(self.cache), "NUMBA_OPT": "1"}
        (folder / "own_kernel.py").write_text(HALFWAY)
        (folder / "use.py").write_text("import own_kernel\n" + USE)

    def run(self, script):
        command = [sys.executable, "-W", "error", script]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    shop = Workshop(tmp_path_factory.mktemp("kernel"))
    shop.first = shop.run("use.py")
    return shop


def test_the_second_process_starts_compiled_and_an_edited_kernel_is_compiled_anew(workshop):
    first = workshop.first
    second = workshop.run("use.py")
    assert second["misses"] == [0, 0, 0, 0]
    assert second["numbers"] == first["numbers"]
    assert second["seconds"] < first["seconds"] / 3
    (workshop.folder / "own_kernel.py").write_text(HALFWAY.replace("- 0.5", "- 0.250"))
    edited = workshop.run("use.py")
    assert edited["misses"] == [1, 0, 0, 0]
    assert [one == old for one, old in zip(edited["numbers"], first["numbers"], strict=True)] == [False, True] * 2


REACHED = """
import numba
from numba.extending import overload, register_jitable
from rates import RATE

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

@numba.njit
def by_default(z, rate=RATE):
    return z - rate
"""

REACHES = {
    "alone": ("from rates import RATE", "z - RATE"),
    "dotted": ("import rates", "z - rates.RATE"),
    "by_overload": ("from reached import overloaded", "overloaded(z)"),
    "by_jitable": ("import reached", "reached.jitable(z)"),
    "with_default": ("from reached import by_default", "by_default(z)"),
}
"""How a kernel may come by a number of another file."""

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


def test_whatever_a_kernel_reaches_makes_it_old(tmp_path, workshop):
    """Machine code in the next process, and chunks, by one list of what a kernel relies on; numba alone would miss all of it."""
    shop = Workshop(tmp_path, workshop.cache)
    for name, (imported, formula) in REACHES.items():
        (tmp_path / f"kernel_{name}.py").write_text(KERNEL.format(name=name, imported=imported, formula=formula))
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


def flip(data):
    """Change one bit in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(("suffix", "damage"), [("nbc", flip), ("nbi", lambda data: b"")], ids=["one bit", "empty"])
def test_a_damaged_file_of_machine_code_is_deleted_and_made_again(tmp_path, suffix, damage):
    shop = Workshop(tmp_path)
    script = "import grpo_theory as gt\nprint(gt.estimators()['rloo'].advantage.kernel.stats.cache_misses.total())\n"

    def run():
        return subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=shop.environment, capture_output=True, text=True)

    assert [run().stdout for _ in range(2)] == ["1\n", "0\n"]
    (path,) = shop.cache.rglob(f"named.rloo-*.{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    mended = run()
    assert (mended.returncode, mended.stdout) == (0, "1\n"), mended.stderr
    assert f"DamagedCacheWarning: the file {path} of compiled code was damaged" in mended.stderr
    assert run().stdout == "0\n"


LARGE = """
problem = gt.Problem(gt.Bandit([[0.3, 0.8]]), gt.TabularSoftmax(1, 2)), [0.0, 0.7]
print([gt.gradient_mse(*problem, name, batch_size=2, group_size=4) for name in ("of_a_table", "rloo")])
"""


def test_what_cannot_be_kept_on_disk_is_compiled_without_a_word(tmp_path, workshop):
    """numba warns of a large array that a kernel names, and of all functions with NUMBA_OPT=0; warnings are errors here."""
    table = "import numpy as np\n\ntable = np.ones(200_000)"
    large = KERNEL.format(imported=table, name="of_a_table", formula="z * table[g]")
    kept, slow = Workshop(tmp_path, workshop.cache), Workshop(tmp_path)
    slow.environment["NUMBA_OPT"] = "0"
    (tmp_path / "large.py").write_text(large + LARGE)
    assert slow.run("large.py") == pytest.approx(kept.run("large.py"), rel=1e-10)
    assert not any("of_a_table" in path.name for shop in (kept, slow) for path in shop.cache.rglob("*.nbc"))
