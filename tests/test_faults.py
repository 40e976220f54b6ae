"""A run that is killed loses at most the chunks in flight, and ends with the tables of an undisturbed one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grpo_theory.harness.runner import chunks_of, missing_in
from grpo_theory.harness.store import CHUNKS, Store
from simulations import __main__ as command
from simulations.collection import studies

ROOT = Path(__file__).resolve().parents[1]
ASKED = ("error_law",)


def test_a_killed_run_goes_on_to_the_tables_of_an_undisturbed_one(tmp_path):
    """Every file of a chunk that the kill leaves is whole."""
    calm, killed = tmp_path / "undisturbed", tmp_path / "killed"
    words = ["run", *ASKED, "--quick", "--workers", "2", "--results"]
    assert command.main([*words, str(calm)]) == 0
    run = subprocess.Popen([sys.executable, "-m", "simulations", *words, str(killed)], cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120.0
    while len(left := list((killed / CHUNKS).rglob("[0-9]*.json"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    chunks = chunks_of([studies()[name] for name in ASKED], quick=True)
    assert (
        len(left) <= len(chunks) - len(missing_in(chunks, Store(killed, 0))) == len(list((killed / CHUNKS).rglob("[0-9]*.json")))
    )
    assert command.main([*words, str(killed)]) == 0
    for name in ASKED:
        assert (killed / f"{name}.parquet").read_bytes() == (calm / f"{name}.parquet").read_bytes()


def test_what_a_killed_run_had_begun_to_write_is_swept_and_nothing_else(tmp_path):
    begun = [tmp_path / CHUNKS / "study" / "cell" / ".0001.json.77.partial", tmp_path / ".claims.csv.77.partial"]
    others = [tmp_path / ".gitignore", tmp_path / "notes.md", tmp_path / "mine" / "draft.partial"]
    for path in begun + others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    with Store(tmp_path, 0).locked():
        assert [path.exists() for path in begun + others] == [False, False, True, True, True]


def test_a_results_folder_that_cannot_be_written_is_one_line_before_anything_is_computed(tmp_path, monkeypatch, one_line):
    monkeypatch.setattr("grpo_theory.harness.command.run", lambda *_, **__: pytest.fail("something was computed"))
    (tmp_path / "file").write_text("no folder")
    error = one_line(command.main, "run", ASKED[0], "--quick", "--results", tmp_path / "file")
    assert error == f"--results must be a folder that can be written, got {tmp_path / 'file'}: File exists\n"
