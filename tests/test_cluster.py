"""A real Dask cluster: a worker that is killed, one that comes late, a user's kernels, and the tables of threads to a byte."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

from grpo_theory.harness import options
from simulations import __main__ as command
from simulations.gradient import cells, estimators

ROOT = Path(__file__).resolve().parents[1]
ASKED = ["run", "estimators", "--quick"]
"""With a language model, whose products of large matrices differ in their last bits with the number of threads."""
KERNEL = """
import grpo_theory as gt


@gt.estimator("half_mean")
def half_mean(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = batch.rewards[b, g] - 0.5 * batch.rewards[b].mean()
"""


@contextmanager
def program(*words, **streams):
    """Run a program of Python's from another folder, which finds the project as a worker of a cluster does; end it at last."""
    where = {"cwd": "/", "env": {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}}
    with subprocess.Popen([sys.executable, *words], text=True, **where, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def scheduler(folder):
    """Start a scheduler, and yield its HOST:PORT."""
    asked = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"]
    log = folder / "scheduler.log"
    with log.open("w") as out, program(*asked, stdout=out, stderr=subprocess.STDOUT):
        deadline = time.monotonic() + 120.0
        while not (found := re.search(r"tcp://(127\.0\.0\.1:\d+)", log.read_text())) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield found[1]


def worker(address):
    """Start a worker of one thread, which nobody starts again."""
    asked = ["-m", "distributed.cli.dask_worker", f"tcp://{address}", "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    return program(*asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def chunks(root):
    """Return the number of chunks that are finished."""
    return len(list((root / "chunks").rglob("[0-9]*.json")))


def test_a_worker_that_dies_and_one_that_comes_late_change_no_byte(registry, tmp_path, monkeypatch):
    """The first worker is killed after five chunks; then there is none until the second one comes, which does the rest."""
    kernels = tmp_path / "half.py"
    kernels.write_text(KERNEL)
    asked = [*ASKED, "--kernels", str(kernels), "--results"]
    monkeypatch.setattr(estimators, "PROBLEMS", ("lm-few-shot", "tabular"))
    monkeypatch.setattr(estimators, "GROUP_SIZES", (4,))
    monkeypatch.setattr(cells, "QUICK_RESPONSES", 1 << 20)
    assert command.main([*asked, str(tmp_path / "threads")]) == 0
    total, root, left = chunks(tmp_path / "threads"), tmp_path / "dask", []
    with scheduler(tmp_path) as address, worker(address) as first, ExitStack() as later:

        def replace():
            deadline = time.monotonic() + 120.0
            while chunks(root) < 5 and time.monotonic() < deadline:
                time.sleep(0.01)
            first.kill()
            first.wait()
            left.append(chunks(root))
            later.enter_context(worker(address))

        replacing = Thread(target=replace)
        replacing.start()
        assert command.main([*asked, str(root), "--executor", f"dask://{address}"]) == 0
        replacing.join()
    assert 5 <= left[0] < total
    assert chunks(root) == total
    assert (root / "estimators.parquet").read_bytes() == (tmp_path / "threads" / "estimators.parquet").read_bytes()


def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path, monkeypatch, one_line):
    monkeypatch.setattr(options, "PATIENCE", 0.5)
    error = one_line(command.main, *ASKED, "--results", tmp_path, "--executor", "dask://127.0.0.1:9")
    assert error.startswith("--executor must name a scheduler that answers, got tcp://127.0.0.1:9: ")
