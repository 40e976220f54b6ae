"""Studies in processes: the same tables as in threads, interrupts for the parent alone, and a word when a process dies."""

import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pandas as pd
import pytest

from simulations import __main__ as command
from simulations.harness.executors import EXECUTORS, processes, start_all
from simulations.harness.store import read_table

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


def test_processes_leave_interrupts_to_their_parent():
    with processes(1) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN


def test_processes_are_deaf_to_interrupts_from_their_first_moment_and_the_parent_is_not():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        start_all(pool, 1)
        assert signal.SIGINT in pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_the_table_is_the_same_in_threads_and_processes(tmp_path):
    tables = []
    for name in EXECUTORS:
        where = ["--results", str(tmp_path / name), "--workers", "2"]
        assert command.main(["run", "lemma_14", "--quick", "--executor", name, *where]) == 0
        tables.append(read_table(tmp_path / name, "lemma_14")[0])
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_a_process_that_dies_is_one_line(registry, tmp_path, capsys):
    (tmp_path / "deadly.py").write_text(DEADLY)
    where = ["--results", str(tmp_path), "--kernels", str(tmp_path / "deadly.py"), "--workers", "1"]
    assert command.main(["run", "lemma_14", "--executor", "processes", *where]) == 1
    error = capsys.readouterr().err
    assert error.startswith("a worker has died")
    assert error.count("\n") == 1


def test_an_unknown_executor_is_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        command.main(["run", "--executor", "clouds"])
    assert refused.value.code == 2
    assert "threads" in capsys.readouterr().err
