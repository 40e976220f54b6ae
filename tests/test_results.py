"""What stands in a folder of results: tables that belong together, verdicts and their origin, locks, full disks."""

import dataclasses
import errno
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from grpo_theory.evidence import Claim, Evidence, Statement
from grpo_theory.harness import runner, store, verdicts
from grpo_theory.harness.runner import build_table, run
from grpo_theory.harness.store import Store, StoreError, read_run, read_table
from grpo_theory.harness.study import Cell, Study
from grpo_theory.harness.verdicts import check_together, judge_tables, read_verdicts, write_verdicts
from paper_figures import __main__ as figures_command
from simulations import __main__ as command

STATEMENT = Statement("U1", "arXiv 2603.01162, Lemma 2", "they agree", "identity")


def cells(quick):
    return [Cell({"n": n}, chunks=2) for n in (1, 2)]


def compute(settings, seed, chunk):
    return float(np.random.default_rng(seed).random())


def table(results, quick):
    made = [(settings["n"], sum(chunks), len(chunks)) for settings, chunks in results]
    return [{"problem": f"n = {n}", "prediction": x, "estimate": x, "standard_error": 0.0, "replications": m} for n, x, m in made]


def claims(table):
    exact = [Evidence(row.estimate, row.prediction) for row in table.itertuples()]
    return [
        Claim(STATEMENT, row.problem, found, Evidence(row.estimate, 2.0 + row.prediction), {})
        for row, found in zip(table.itertuples(), exact, strict=True)
    ]


ONE = Study("one", "the first", __name__, cells, compute, table, claims)
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
    assert found.studies == ("one", "two")
    assert found.claims["study"].tolist() == ["one", "one", "two", "two"]
    assert (found.seed, found.quick) == (0, True)


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
    with pytest.raises(StoreError, match=f"another {other}"):
        judge_tables(tmp_path, ["one", "two"], STUDIES)


def test_tables_of_one_figure_belong_together(three, tmp_path):
    make(tmp_path, "one", "two")
    check_together(tmp_path, ["one", "two"])
    make(tmp_path, "two", seed=3)
    with pytest.raises(StoreError, match=r"one and two in .* are of another seed each"):
        check_together(tmp_path, ["one", "two"])


def test_verdicts_are_not_read_beside_other_tables(three, tmp_path):
    verify(tmp_path, "one", "two")
    make(tmp_path, "two", seed=3)
    with pytest.raises(StoreError, match=r"two\.parquet is not the one that .*claims\.csv was judged from: run `.* verify two`"):
        read_verdicts(tmp_path, STUDIES)


DAMAGES = {
    "edited": lambda claims, origin: claims.write_bytes(claims.read_bytes().replace(b"confirmed", b"refuted")),
    "binary": lambda claims, origin: claims.write_bytes(b"\xff\xfe\x00"),
    "gone": lambda claims, origin: claims.unlink(),
    "origin a list": lambda claims, origin: origin.write_text("[1]"),
    "origin gone": lambda claims, origin: origin.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_verdicts_that_verify_did_not_write_are_one_line(three, tmp_path, damage, capsys):
    verify(tmp_path, "one")
    DAMAGES[damage](tmp_path / "claims.csv", tmp_path / "claims.json")
    assert figures_command.main(["--quick", "--results", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"run `python -m simulations verify --quick --results {tmp_path}`" in error
    assert error.count("\n") == 1


def test_a_table_is_the_same_bytes_from_run_to_run(three, tmp_path):
    for folder in ("a", "b"):
        make(tmp_path / folder, "one")
    first, second = ((tmp_path / folder / "one.parquet").read_bytes() for folder in ("a", "b"))
    assert first == second
    facts = read_run(tmp_path / "a", "one")
    assert facts["processor seconds"] > 0.0
    assert {"host", "built"} <= set(facts)


def test_a_chunk_that_is_gone_is_an_error_and_no_smaller_sample(three, tmp_path):
    make(tmp_path, "one")
    before = (tmp_path / "one.parquet").read_bytes()
    next(tmp_path.glob("chunks/one/*/0001.json")).unlink()
    with pytest.raises(StoreError, match="chunk 1 of study one cannot be read back"):
        build_table(ONE, Store(tmp_path, 0), quick=True)
    assert (tmp_path / "one.parquet").read_bytes() == before


def test_chunks_of_other_versions_are_computed_again(three, tmp_path, monkeypatch):
    make(tmp_path, "one")
    chunk = next(tmp_path.glob("chunks/one/*/0001.json"))
    body = json.loads(chunk.read_text())["body"]
    results = Store(tmp_path, 0)
    cell = next(cell for cell in cells(quick=True) if cell.settings == body["settings"])
    assert results.read_chunk(ONE, cell, 1) is not None
    monkeypatch.setattr(store, "versions", lambda: body["versions"] | {"matplotlib": "99"})
    assert results.read_chunk(ONE, cell, 1) is not None
    monkeypatch.setattr(store, "versions", lambda: body["versions"] | {"numpy": "99"})
    assert results.read_chunk(ONE, cell, 1) is None


@pytest.mark.parametrize("file", ["lemma_14.parquet", "claims.csv", "claims.json", "0000.json"])
def test_a_full_disk_is_one_line_and_keeps_what_was_there(tmp_path, monkeypatch, capsys, file):
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
    capsys.readouterr()
    again = ["--seed", "1"] if file == "0000.json" else []
    assert command.main(["verify", "lemma_14", *where, *again]) == 2
    error = capsys.readouterr().err
    assert error.startswith("cannot write ")
    assert "No space left" in error
    assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_no_flipped_bit_of_a_table_changes_a_number_or_ends_in_another_error(three, tmp_path):
    """Each bit, or, with a Parquet reader behind it that would be slow or worse, one bit of each byte: all must be seen."""
    make(tmp_path, "one")
    path = tmp_path / "one.parquet"
    content = path.read_bytes()
    for byte in range(len(content)):
        path.write_bytes(flipped(content, 8 * byte + byte % 8))
        with pytest.raises(StoreError, match=r"one\.parquet is damaged .*: run `python -m simulations run one`"):
            read_table(tmp_path, "one")
    path.write_bytes(content)
    assert len(read_table(tmp_path, "one")[0]) == 2


def test_no_flipped_bit_of_the_verdicts_origin_is_read(three, tmp_path):
    verify(tmp_path, "one")
    origin = tmp_path / "claims.json"
    content = origin.read_bytes()
    for byte in range(len(content)):
        origin.write_bytes(flipped(content, 8 * byte))
        with pytest.raises(StoreError, match=r"verdicts .* are damaged"):
            read_verdicts(tmp_path, STUDIES)
        assert verdicts.read_seed(tmp_path) == 0


KERNEL = """
import grpo_theory as gt

@gt.estimator("mine")
def mine(batch, advantages):
    advantages[:, :] = batch.rewards{}
"""
FILES = {
    "empty": ("nothing.py", "", "it registers none"),
    "zero division": ("fails.py", "1 / 0", "ZeroDivisionError: division by zero"),
    "binary": ("binary.py", b"\xff\xfe", "UnicodeDecodeError"),
    "numpy": ("numpy.py", KERNEL.format(""), "there is an installed module 'numpy'"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_kernels_that_cannot_be_used_is_one_line(registry, tmp_path, capsys, kind):
    name, text, message = FILES[kind]
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert command.main(["run", "lemma_14", "--quick", "--results", str(tmp_path), "--kernels", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"--kernels must be a Python file that registers estimators, got {path}: ")
    assert message in error
    assert error.count("\n") == 1
    assert sys.modules["numpy"] is np
