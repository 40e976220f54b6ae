"""What stands in a folder of results: tables that belong together, verdicts and their origin, locks, full disks."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from grpo_theory.evidence import Statement
from grpo_theory.harness import runner, store
from grpo_theory.harness.interrupts import RefusedError
from grpo_theory.harness.runner import build_table, run
from grpo_theory.harness.store import Store, judge_tables, read_table, read_verdicts, write_verdicts
from grpo_theory.harness.study import Cell, Study
from paper_figures import __main__ as figures_command
from simulations import __main__ as command

STATEMENT = Statement("U1", "arXiv 2603.01162, Lemma 2", "they agree", "identity")


def table(results, quick):
    made = [(settings["n"], sum(chunks), len(chunks)) for settings, chunks in results]
    return [{"problem": f"n = {n}", "prediction": x, "estimate": x, "standard_error": 0.0, "replications": m} for n, x, m in made]


def claims(table):
    return [STATEMENT.compare(row.problem, row.estimate, row.prediction, broken=row.estimate + 2.0) for row in table.itertuples()]


CELLS = [Cell({"n": n}, chunks=2) for n in (1, 2)]
ONE = Study("one", "the first", __name__, lambda quick: CELLS, lambda settings, rng, chunk: rng.random(), table, claims)
STUDIES = {name: dataclasses.replace(ONE, name=name) for name in ("one", "two", "three")}


@pytest.fixture
def three(monkeypatch):
    """Three small studies in the place of the package's."""
    monkeypatch.setattr(runner, "study_in", lambda module: ONE)


def make(root, *names, seed=0, quick=True):
    with ThreadPoolExecutor(1) as executor:
        list(run([STUDIES[name] for name in names], Store(root, seed), executor, quick=quick))


def verify(root, *names, **more):
    make(root, *names, **more)
    found, left_out = judge_tables(root, names, STUDIES)
    write_verdicts(root, found)
    return left_out


def test_verifying_some_studies_keeps_the_verdicts_of_the_others(three, tmp_path):
    verify(tmp_path / "at once", "one", "two")
    assert verify(tmp_path / "in turn", "two") == {}
    assert verify(tmp_path / "in turn", "one") == {}
    files = [(tmp_path / folder / "claims.csv").read_bytes() for folder in ("at once", "in turn")]
    assert files[0] == files[1]
    found = read_verdicts(tmp_path / "in turn", STUDIES)
    assert (found.studies, found.seed, found.quick) == (("one", "two"), 0, True)
    assert found.claims["study"].tolist() == ["one", "one", "two", "two"]


@pytest.mark.parametrize("other", ["seed", "quick", "versions", "source"])
def test_tables_that_do_not_belong_together_are_not_judged_together(three, tmp_path, monkeypatch, other):
    with monkeypatch.context() as patch:
        if other == "versions":
            patch.setattr(store, "versions", lambda: {"numpy": "0", "scipy": "0", "numba": "0"})
        if other == "source":
            patch.setattr(store, "study_fingerprint", lambda study: "older")
        make(tmp_path, "two", seed=7 if other == "seed" else 0, quick=other != "quick")
    left_out = verify(tmp_path, "one")
    assert read_verdicts(tmp_path, STUDIES).studies == ("one",)
    assert left_out["two"].endswith(f"two.parquet is of another {other}")
    with pytest.raises(RefusedError, match=f"another {other}"):
        judge_tables(tmp_path, ["one", "two"], STUDIES)


def test_verdicts_are_not_read_beside_other_tables(three, tmp_path):
    verify(tmp_path, "one", "two")
    make(tmp_path, "two", seed=3)
    message = r"two\.parquet is not the one that .*claims\.csv was judged from: run `.* verify two`"
    with pytest.raises(RefusedError, match=message):
        read_verdicts(tmp_path, STUDIES)


def test_a_chunk_that_is_gone_is_an_error_and_no_smaller_sample(three, tmp_path):
    make(tmp_path, "one")
    before = (tmp_path / "one.parquet").read_bytes()
    next(tmp_path.glob("chunks/one/*/0001.json")).unlink()
    with pytest.raises(RefusedError, match="chunk 1 of study one cannot be read back"):
        build_table(ONE, Store(tmp_path, 0), quick=True)
    assert (tmp_path / "one.parquet").read_bytes() == before


def test_chunks_of_other_versions_are_computed_again(three, tmp_path, monkeypatch):
    make(tmp_path, "one")
    chunk = next(tmp_path.glob("chunks/one/*/0001.json"))
    body = json.loads(chunk.read_text())["body"]
    cell = next(cell for cell in CELLS if cell.settings == body["settings"])
    for changed, kept in (({}, True), ({"matplotlib": "99"}, True), ({"numpy": "99"}, False)):
        monkeypatch.setattr(store, "versions", lambda changed=changed: body["versions"] | changed)
        assert (Store(tmp_path, 0).read_chunk(ONE, cell, 1) is not None) == kept


@pytest.mark.parametrize("file", ["lemma_14.parquet", "claims.csv", "claims.json"])
def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path, monkeypatch, one_line, file):
    where = ["--quick", "--results", str(tmp_path)]
    assert command.main(["verify", "lemma_14", *where]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file() and path.parent.name != "runs"}
    write = Path.write_bytes

    def full(self, content):
        if self.name.startswith(f".{file}"):
            write(self, content[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    error = one_line(command.main, "verify", "lemma_14", *where)
    assert error.startswith("cannot write ")
    assert "No space left" in error
    assert {path: path.read_bytes() for path in before} == before
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]


def flips(path):
    """Write a file anew with one bit of each byte flipped, a byte at a time, and as it was at last."""
    content = path.read_bytes()
    for byte, value in enumerate(content):
        path.write_bytes(content[:byte] + bytes([value ^ 1 << byte % 8]) + content[byte + 1 :])
        yield
    path.write_bytes(content)


def test_no_flipped_bit_of_a_table_or_of_the_verdicts_and_their_origin_is_read(three, tmp_path, one_line):
    verify(tmp_path, "one")
    for name in ("claims.csv", "claims.json"):
        for _ in flips(tmp_path / name):
            with pytest.raises(RefusedError, match=r"verdicts .* are damaged"):
                read_verdicts(tmp_path, STUDIES)
    for _ in flips(tmp_path / "one.parquet"):
        with pytest.raises(RefusedError, match=r"one\.parquet is damaged .*: run `python -m simulations run one`"):
            read_table(tmp_path, "one")
    assert len(read_table(tmp_path, "one")[0]) == 2
    (tmp_path / "claims.json").unlink()
    error = one_line(figures_command.main, "--quick", "--results", tmp_path, "--out", tmp_path / "out")
    assert f"run `python -m simulations verify --quick --results {tmp_path}`" in error


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_reading_a_table_starts_no_threads_of_arrows(three, tmp_path):
    """One that is still at work when the interpreter ends aborts it (apache/arrow#34314)."""
    make(tmp_path, "one")
    count = "import os, sys, pathlib; from grpo_theory.harness import store; own = lambda: len(os.listdir('/proc/self/task'))"
    script = f"{count}; before = own(); store.read_table(pathlib.Path(sys.argv[1]), 'one'); print(own() - before)"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_a_file_of_kernels_that_cannot_be_used_is_one_line(registry, tmp_path, one_line):
    for name, text, message in (
        ("nothing.py", "", "it registers none"),
        ("fails.py", "1 / 0", "ZeroDivisionError: division by zero"),
        ("numpy.py", "", "there is an installed module 'numpy'"),
    ):
        (tmp_path / name).write_text(text)
        error = one_line(command.main, "run", "lemma_14", "--quick", "--results", tmp_path, "--kernels", tmp_path / name)
        assert error.startswith(f"--kernels must be a Python file that registers estimators, got {tmp_path / name}: ")
        assert message in error
    assert sys.modules["numpy"] is np
