"""A user's file as a study: whatever is wrong with it is one line and status 2; what it needs travels and makes it stale."""

import dataclasses
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import pytest
from own_studies import EXACT, NUMBERS, SIMULATED, forget, write

from grpo_theory.harness.runner import compute_chunk, made_with
from grpo_theory.harness.store import study_fingerprint
from grpo_theory.harness.study_file import read_study
from grpo_theory.page.command import main


@pytest.fixture(autouse=True)
def forgotten():
    """Forget the modules and folders of a test's files."""
    paths = list(sys.path)
    yield
    forget(sys.modules)
    sys.path[:] = paths


@pytest.fixture
def refused(tmp_path, one_line):
    """Return a function that verifies a text and returns the one line that it is refused with."""

    def verify(text, name="own_study.py"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / "own_numbers.py").write_text(NUMBERS)
        error = one_line(main, "verify", path, "--quick", "--out", tmp_path / "out", "--workers", "1")
        assert error.startswith("grpo-theory verify: ")
        return error.removeprefix("grpo-theory verify: ").strip().replace(str(tmp_path), "HERE")

    return verify


FORMS = (
    "HERE/own_study.py: a study must define checks, @gt.check(...), or compare(settings), or "
    "simulate(settings, rng, chunk), rows(settings, results) and claims(table); own_study defines "
)
BAD = {
    "not Python": ("def (", "HERE/own_study.py is not Python: invalid syntax (line 1)"),
    "raises": ("\n1 / 0\n", "HERE/own_study.py cannot be run: ZeroDivisionError: division by zero (line 2)"),
    "no form": ("X = 1\n", f"{FORMS}none of them"),
    "states nothing": ("def compare(settings):\n    yield {}\n", "HERE/own_study.py states nothing: put a Statement at its top"),
    "unknown kind": (EXACT.replace('"identity"', '"theorem"'), "HERE/own_study.py cannot be run: ValueError: kind must be "),
    "not stated": (
        EXACT.replace("yield SQUARE.compare(", 'yield gt.Statement("mine/cube", "", "", "identity").compare('),
        "own_study: compare() yields a comparison of 'mine/cube', which its file does not state",
    ),
    "raises in compare": (EXACT.replace("x**2, x * x", "x / (x - 3), 1.0"), "own_study: compare() has failed: Zero"),
    "no estimate": (EXACT.replace('"estimate": float', '"value": float'), "own_study: rows() has failed: ValueError: rows"),
    "no JSON": (EXACT.replace("float(x**2)", "{1, 2}"), "own_study: compare() has failed: TypeError: Object of type set"),
    "a claim that is not stated": (
        SIMULATED.replace("[MEAN.claim", '[gt.Statement("mine/other", "", "", "upper bound").claim'),
        "own_study: claims(table) has a claim about 'mine/other', which its file does not state",
    ),
    "half a pair": (EXACT.replace("$x^2=", r"$\left(x^2="), r"the formula of mine/square: '\\left(x^2=x\\cdot x' cannot be"),
    "no margin": (
        re.sub(r"    margin=gt.Margin.*\n", "", SIMULATED),
        "HERE/own_study.py: a statement of kind 'equality' needs a margin: give mine/mean margin=Margin(value, because), ",
    ),
    "a shared generator": (
        SIMULATED.replace("rng.standard_normal(", "(np.random.seed(3) or np.random.normal)(size="),
        "own_study: simulate() drew from np.random, whose numbers all of a program share, so they may differ from run to run. "
        "Draw from the generator rng",
    ),
    "shared in rows": (SIMULATED.replace("means = np", "np.random.rand()\n    means = np"), "own_study: rows() drew from np."),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_is_no_study_is_one_line(refused, kind):
    text, message = BAD[kind]
    assert refused(text).startswith(message)


def test_a_file_of_the_name_of_a_module_is_one_line(refused):
    assert refused(EXACT, "wave.py") == "HERE/wave.py: there is another module 'wave', give the file another name"


def test_a_figure_that_fails_leaves_table_and_verdicts(refused, tmp_path):
    line = refused(EXACT.replace("return figure", "return 3"))
    assert line.startswith("own_study: draw(table) must return a figure of matplotlib, got int")
    assert line.endswith("; table, verdicts and page are kept, without the figure")
    assert {"own_study.parquet", "claims.csv", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_two_studies_of_one_name_or_one_statement_are_refused(tmp_path, one_line):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        write(folder)
    files, out = [tmp_path / "own_squares.py", tmp_path / "other" / "own_squares.py"], ("--out", tmp_path / "out")
    error = one_line(main, "verify", *files, *out)
    assert error == f"grpo-theory verify: {files[1]}: {files[0]} is a study of the same name, rename one file\n"
    (tmp_path / "own_more.py").write_text(EXACT.replace("for every x", "for some x"))
    said = f"own_more.py: {files[0]} states something else under the id 'mine/square', rename one\n"
    assert one_line(main, "verify", files[0], tmp_path / "own_more.py", *out).endswith(said)


def test_the_files_travel_with_what_they_import(tmp_path, monkeypatch):
    """A process that has none of the files computes the same from their texts."""
    write(tmp_path)
    study = read_study(tmp_path / "own_squares.py")
    assert [source.module for source in study.sources] == ["own_numbers", "own_squares"]
    (cell,) = study.cells(True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    there = tuple(dataclasses.replace(one, path=str(tmp_path / "gone" / Path(one.path).name)) for one in study.sources)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        data, _ = pool.submit(compute_chunk, there, cell, 0, 0, (), made_with(study.sources)).result()
    pd.testing.assert_frame_equal(pd.DataFrame(data), pd.DataFrame(study.compute(cell.settings, None, 0)))
    assert len(data) == 4
    assert study_fingerprint(dataclasses.replace(study, sources=there)) == study_fingerprint(study), "wherever the files lie"
