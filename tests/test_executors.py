"""Studies in processes: the same tables as in threads, interrupts for the parent alone, and a word when a process dies."""

import signal

import pytest

from grpo_theory.harness.interrupts import RefusedError
from grpo_theory.harness.options import EXECUTORS, process_pool
from grpo_theory.harness.runner import compute_chunk, made_with
from simulations import __main__ as command
from simulations.collection import studies

DEADLY = """
import multiprocessing
import os

if multiprocessing.parent_process() is not None:
    os._exit(1)

import grpo_theory as gt


@gt.estimator("deadly")
def deadly(batch, advantages):
    advantages[:, :] = batch.rewards
"""


def test_processes_are_deaf_to_interrupts_from_their_first_moment_and_the_parent_is_not():
    with process_pool(1) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN
        assert signal.SIGINT in pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_the_table_is_the_same_whoever_computes_it(tmp_path):
    for name in EXECUTORS:
        where = ["--results", str(tmp_path / name), "--workers", "1" if name == "dask" else "2"]
        assert command.main(["run", "one_large_step", "--quick", "--executor", name, *where]) == 0
    first, *others = ((tmp_path / name / "one_large_step.parquet").read_bytes() for name in EXECUTORS)
    assert len(others) == 2
    assert set(others) == {first}


def test_a_worker_of_another_checkout_is_refused():
    study = studies()["one_large_step"]
    (cell, *_), here = study.cells(True), made_with(study.module)
    for name, value in here.items():
        with pytest.raises(RefusedError, match=f"has another {name}"):
            compute_chunk(study.module, cell, 0, 0, (), here | {name: f"not {value}"})
    compute_chunk(study.module, cell, 0, 0, (), here)


def test_a_process_that_dies_is_one_line(registry, tmp_path, one_line):
    (tmp_path / "deadly.py").write_text(DEADLY)
    where = ("--results", tmp_path, "--kernels", tmp_path / "deadly.py", "--workers", "1")
    error = one_line(command.main, "run", "lemma_14", "--executor", "processes", *where, status=1)
    assert error.startswith("a worker has died")
