"""A run that is killed at random moments loses at most the chunks in flight, and ends with the tables of an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from grpo_theory.harness.runner import chunks_of, missing_in
from grpo_theory.harness.store import CHUNKS, Store
from simulations import __main__ as command
from simulations.collection import studies

ROOT = Path(__file__).resolve().parents[1]
ASKED = ("error_law", "dynamic_sampling")

NURSERY = """
import os, sys
import pyarrow.parquet
from simulations.__main__ import main
from simulations.collection import studies

out, sys.stdout = sys.stdout, open(os.devnull, "w")
studies()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os._exit(main(line.split()))
    print(child, file=out, flush=True)
    next(sys.stdin)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=out, flush=True)
"""
"""Imports everything once; then each run, a process of its own, begins at once.

It makes no run itself, because threads do not survive a fork. A run that is forked would wait for ever for what a thread held at
that moment. Arrow's own allocator has such a thread, so the system's takes its place.

The end of a run is asked for: until then its number is its own, so that whoever kills it kills nobody else.
"""


@contextmanager
def nursery(*words):
    """Make one run undisturbed, then others: yields what starts one, given a command's words, and what waits for its end."""
    made, pool = [sys.executable, "-c", NURSERY], {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(made, cwd=ROOT, env=os.environ | pool, text=True, **pipes) as parent:

        def ask(line):
            parent.stdin.write(line + "\n")
            parent.stdin.flush()
            return int(parent.stdout.readline())

        def start(*words):
            return ask(" ".join(map(str, words)))

        def ended():
            return ask("ended")

        start(*words)
        assert ended() == 0
        yield start, ended
        parent.stdin.close()


def files(root):
    """Return the files of chunks."""
    return list((root / CHUNKS).rglob("[0-9]*.json"))


def kept(root):
    """Return how many chunks are there: every file of one is whole, with its checksum."""
    chunks = chunks_of([studies()[name] for name in ASKED], quick=True)
    found = len(chunks) - len(missing_in(chunks, Store(root, 0)))
    assert found == len(files(root))
    return found


def kill_at_some_moment(start, ended, asked, root, total, moments):
    """Start a run, kill it some chunks and milliseconds later, and return its exit status: 0 if it was faster."""
    wanted = min(len(files(root)) + moments.choice((0, 0, 1, 2, 3)), total)
    run, deadline = start(*asked, root), time.monotonic() + 120.0
    while len(files(root)) < wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(moments.uniform(0.0, 0.1))
    os.kill(run, signal.SIGKILL)
    status = ended()
    assert status in (0, -signal.SIGKILL), "the run ended by itself, with what it says on the standard error"
    assert kept(root) >= wanted, "the run wrote nothing more for two minutes"
    return status


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked, so that twenty of them do not import everything anew")
def test_killed_at_random_moments_the_tables_are_those_of_an_undisturbed_run(tmp_path):
    """What was there when the kill came is there afterwards; where a run ends before its kill, the next begins anew."""
    moments = random.Random(20261122)
    asked = ("run", *ASKED, "--quick", "--workers", "2", "--results")
    calm, folders = tmp_path / "undisturbed", [tmp_path / "killed"]
    with nursery(*asked, calm) as (start, ended):
        total, kills = kept(calm), 0
        while kills < 20:
            if kill_at_some_moment(start, ended, asked, folders[-1], total, moments) == 0:
                folders.append(tmp_path / f"killed-{len(folders)}")
            else:
                kills += 1
        start(*asked, folders[-1])
        assert ended() == 0
    for root in folders:
        for name in ASKED:
            assert (root / f"{name}.parquet").read_bytes() == (calm / f"{name}.parquet").read_bytes()
        assert not list(root.rglob("*.partial"))


def test_what_a_killed_run_had_begun_to_write_is_swept_and_nothing_else(tmp_path):
    store = Store(tmp_path, 0)
    (tmp_path / CHUNKS / "study" / "cell").mkdir(parents=True)
    begun = [tmp_path / CHUNKS / "study" / "cell" / ".0001.json.77.partial", tmp_path / ".claims.csv.77.partial"]
    others = [tmp_path / ".gitignore", tmp_path / "notes.md", tmp_path / "mine" / "draft.partial"]
    others[-1].parent.mkdir()
    for path in begun + others:
        path.write_text("half")
    with store.locked():
        assert not any(path.exists() for path in begun)
        assert all(path.exists() for path in others)


@contextmanager
def nobody():
    """Be a user who may write only where anyone may: the superuser may write everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="folders have no permissions of this kind")
def test_a_results_folder_that_cannot_be_written_is_one_line_before_anything_is_computed(monkeypatch, capsys):
    monkeypatch.setattr("grpo_theory.harness.command.run", lambda *_, **__: pytest.fail("something was computed"))
    studies()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "claims.csv").write_text("of another run")
        root.chmod(0o555)
        with nobody():
            assert command.main(["run", ASKED[0], "--quick", "--results", str(root)]) == 2
        assert [path.name for path in root.iterdir()] == ["claims.csv"]
        root.chmod(0o755)
    error = capsys.readouterr().err
    assert error == f"--results must be a folder that can be written, got {root}: Permission denied\n"
