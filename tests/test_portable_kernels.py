"""A user's kernels in other processes: their file's text travels with the work, and what comes back is the same to the bit."""

import dataclasses
import importlib
import json
import operator
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.estimation import SourceFile
from grpo_theory.harness.runner import run
from grpo_theory.harness.sides import study_of
from grpo_theory.harness.store import Store, read_table
from simulations.gradient import estimators

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"batch_size": 2, "group_size": 4}
KERNELS = '''
import numpy as np
import grpo_theory as gt

SHARE = 0.25


@gt.estimator("portable", parameters={"weight": 0.7}, minimum_group_size=2)
def portable(batch, advantages):
    """A = Z - w of the mean of the group's other rewards."""
    for b in range(batch.rewards.shape[0]):
        total = batch.rewards[b].sum()
        for g in range(batch.rewards.shape[1]):
            others = (total - batch.rewards[b, g]) / (batch.rewards.shape[1] - 1)
            advantages[b, g] = batch.rewards[b, g] - batch.parameters[0] * others + SHARE


def halving(ratios, length, positive, widths, weights):
    """Weight r/2 beyond the clip."""
    for t in range(length):
        for i in range(ratios.shape[1]):
            weights[t, i] = ratios[t, i] if ratios[t, i] <= 1.0 + widths[1] else 0.5 * ratios[t, i]


halved = gt.compose("halved", advantage="rloo", ratio="token", clip=gt.Clip("halving", halving, high=0.1))
'''


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Processes that have imported nothing, as on another machine, with a folder for temporary files of their own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(2, get_context("spawn")) as made:
        patch.setenv("TMPDIR", str(folder))
        patch.delenv("NUMBA_CACHE_DIR", raising=False)
        yield made


@pytest.fixture
def kernels(registry, tmp_path):
    """The file of kernels, run here and, as far as other processes can tell, moved away."""
    path = tmp_path / "portable_of_mine.py"
    path.write_text(KERNELS)
    source = SourceFile.read(path)
    source.load()
    yield dataclasses.replace(source, path=str(tmp_path / "moved" / "portable_of_mine.py"))
    del sys.modules["portable_of_mine"]


def test_processes_write_what_threads_write(registry, kernels, pool, tmp_path, monkeypatch):
    for name in set(registry) - {"rloo", "portable", "halved"}:
        del registry[name]
    monkeypatch.setattr(estimators, "PROBLEMS", ("tabular", "sequence-shared"))
    monkeypatch.setattr(estimators, "GROUP_SIZES", (4,))
    monkeypatch.setattr("simulations.gradient.cells.QUICK_RESPONSES", 1 << 22)
    monkeypatch.setattr("simulations.gradient.cells.CHUNK_RESPONSES", 1 << 21)
    found, study = [], study_of(estimators)
    for name, executor in (("threads", ThreadPoolExecutor(2)), ("processes", pool)):
        store = Store(tmp_path / name, 3)
        for expected in (12, 0):
            assert list(run([study], store, executor, quick=True, kernels=[kernels])) == [(study, expected)]
        chunks = {}
        for path in store.root.glob("chunks/estimators/*/*.json"):
            chunks[path.relative_to(store.root)] = json.loads(path.read_text())["body"] | {"seconds": None}
        found.append((read_table(store.root, "estimators")[0], chunks))
    (table, chunks), (other, others) = found
    assert set(table["estimator"]) == {"rloo", "portable", "halved"}
    pd.testing.assert_frame_equal(table, other, check_exact=True)
    assert chunks == others
    assert len(chunks) == 12
    assert all(chunk["source"] for chunk in chunks.values())


def test_other_processes_run_the_text_and_leave_it_where_the_compiler_finds_it(kernels, pool, tmp_path_factory):
    files = {Path(pool.submit(compute_with, kernels).result()) for _ in range(4)}
    (path,) = files
    assert path.parent.name == kernels.checksum
    assert path.is_relative_to(tmp_path_factory.getbasetemp())
    assert path.read_text() == KERNELS
    assert list(path.parent.rglob("*.nbc")), "compiled code is kept for the next process"


def compute_with(source):
    """Load a file of kernels and use one; return where it lies."""
    module = source.load()
    assert source.load() is module
    problem = gt.gallery.problem("tabular")
    gt.gradient_mse(problem, problem.theta, "portable", **SIZES)
    return module.__file__


@pytest.mark.parametrize("name", ["portable", "halved", "changed", "tic_grpo"])
def test_an_estimator_goes_to_another_process_as_an_argument(kernels, pool, name):
    """It need not be registered there: its file, and those of its parts, come with it."""
    estimator = gt.estimators()["portable"].with_parameters(weight=0.2) if name == "changed" else gt.estimators()[name]
    facts = operator.attrgetter("name", "description", "reads", "couples_groups", "advantage.minimum_group_size", "clip.high")
    assert pool.submit(facts, estimator).result() == facts(estimator)
    problem = gt.gallery.problem("sequence-shared")
    where = {**SIZES, "behaviour": 0.5 * problem.theta}
    exact = pool.submit(gt.gradient_mse, problem, problem.theta, estimator, **where)
    drawn = pool.submit(gt.simulate_gradients, problem, problem.theta, [estimator], **where, replications=500, rng=3)
    assert exact.result() == gt.gradient_mse(problem, problem.theta, estimator, **where)
    own = gt.simulate_gradients(problem, problem.theta, [estimator], **where, replications=500, rng=3)
    np.testing.assert_array_equal(drawn.result().mse, own.mse)


def test_an_edited_file_is_run_anew_in_a_process_that_has_the_old_one(tmp_path):
    """As a worker that outlives an edit: the file has the new text, and the module in memory has not."""
    path = tmp_path / "edited_of_mine.py"
    try:
        for value in (1, 2, 3):  # the same length within a second: byte code beside the file would not be noticed to be old
            path.write_text(f"number = {value}\n")
            assert SourceFile.read(path).load().number == value
            assert sys.modules["edited_of_mine"].number == value
    finally:
        sys.modules.pop("edited_of_mine", None)


RATES, SENT = (
    "RATE = 0.25\n",
    """
import grpo_theory as gt
from rates_of_mine import RATE

OWN = 0.5


@gt.estimator("sent")
def sent(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - OWN - RATE
""",
)

RECEIVE = """
import pickle, sys
import grpo_theory as gt
try:
    estimator = pickle.load(open(sys.argv[1], "rb"))
except ValueError as error:
    print(error)
else:
    problem = gt.gallery.problem("tabular")
    print(repr(gt.gradient_mse(problem, problem.theta, estimator, batch_size=2, group_size=4)))
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "arrives"),
    [
        ("rates", "RATE", "RATE", True),
        ("sent", "OWN = 0.5", "OWN = 0.125", True),
        ("sent", "- OWN - RATE", "- OWN", True),
        ("rates", "0.25", "0.75", False),
    ],
)
def test_an_estimator_edited_since_is_sent_as_it_is_here_or_refused(registry, tmp_path, monkeypatch, file, old, new, arrives):
    """The text that was run here travels; what it imports is read there, and a checksum of all of it tells."""
    monkeypatch.syspath_prepend(tmp_path)
    texts, problem = {"rates": RATES, "sent": SENT}, gt.gallery.problem("tabular")
    for name, text in texts.items():
        (tmp_path / f"{name}_of_mine.py").write_text(text)
    try:
        estimator = importlib.import_module("sent_of_mine").sent
        expected = gt.gradient_mse(problem, problem.theta, estimator, **SIZES)
        (tmp_path / f"{file}_of_mine.py").write_text(texts[file].replace(old, new) + "# edited\n")
        (tmp_path / "estimator.pickle").write_bytes(pickle.dumps(estimator))
    finally:
        for name in texts:
            sys.modules.pop(f"{name}_of_mine", None)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]), "TMPDIR": str(tmp_path)}
    asked = [sys.executable, "-c", RECEIVE, str(tmp_path / "estimator.pickle")]
    done = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if arrives:
        assert float(done.stdout) == expected
    else:
        assert "the function 'sent' of " in done.stdout
        assert "was edited after one of the two had imported it: start both anew" in done.stdout
