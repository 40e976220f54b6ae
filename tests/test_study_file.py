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

from grpo_theory.harness import store
from grpo_theory.harness.runner import compute_chunk, made_with
from grpo_theory.harness.store import study_fingerprint
from grpo_theory.harness.study_file import StudyFileError, load_study, read_study
from grpo_theory.page.command import main


@pytest.fixture(autouse=True)
def forgotten():
    """Forget the modules and folders of a test's files."""
    paths = list(sys.path)
    yield
    forget(sys.modules)
    sys.path[:] = paths


@pytest.fixture
def refused(tmp_path, capsys):
    """Return a function that verifies a text and returns the one line that it is refused with."""

    def verify(text, name="own_study.py", quick=True):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / "own_numbers.py").write_text(NUMBERS)
        status = main(["verify", str(path), *(["--quick"] if quick else []), "--out", str(tmp_path / "out"), "--workers", "1"])
        error = capsys.readouterr().err
        assert status == 2, error
        assert error.startswith("grpo-theory verify: ")
        assert error.count("\n") == 1, error
        return error.removeprefix("grpo-theory verify: ").strip().replace(str(tmp_path), "HERE")

    return verify


FORMS = (
    "HERE/own_study.py: a study must define checks, @gt.check(...), or compare(settings), or "
    "simulate(settings, rng, chunk), rows(settings, results) and claims(table); own_study defines "
)
TWO = EXACT.replace("\n\ndef compare", '\nOTHER = gt.Statement("mine/square", "elsewhere", "other", "identity")\n\n\ndef compare')
BAD = {
    "not Python": ("def (", "HERE/own_study.py is not Python: invalid syntax (line 1)"),
    "raises": ("\n1 / 0\n", "HERE/own_study.py cannot be run: ZeroDivisionError: division by zero (line 2)"),
    "no form": ("X = 1\n", f"{FORMS}none of them"),
    "the other half": (SIMULATED.replace("def simulate", "def simulated"), f"{FORMS}none of them"),
    "states nothing": ("def compare(settings):\n    yield {}\n", "HERE/own_study.py states nothing: put a Statement at its top"),
    "unknown kind": (EXACT.replace('"identity"', '"theorem"'), "HERE/own_study.py: kind must be one of identity, equality, "),
    "no text": (EXACT.replace('"identity"', "3"), "HERE/own_study.py cannot be run: TypeError: kind must be a text, got int"),
    "two of one id": (TWO, "HERE/own_study.py: two statements of own_study have the id 'mine/square'"),
    "not stated": (
        EXACT.replace("yield SQUARE.compare(", 'yield gt.Statement("mine/cube", "", "", "identity").compare('),
        "own_study: compare() yields a comparison of 'mine/cube', which its file does not state",
    ),
    "not finite": (
        EXACT.replace("broken=1.01 * x * x", "broken=float('nan')"),
        "own_study: compare() has failed: ValueError: evidence must be finite",
    ),
    "raises in compare": (EXACT.replace("x**2, x * x", "x / (x - 3), 1.0"), "own_study: compare() has failed: Zero"),
    "no estimate": (EXACT.replace('"estimate": float', '"value": float'), "own_study: rows() has failed: ValueError: rows"),
    "no JSON": (EXACT.replace("float(x**2)", "{1, 2}"), "own_study: compare() has failed: TypeError: Object of type set"),
    "no cells": (SIMULATED.replace("[Cell({", "[dict({").replace("}, chunks=3)", "})"), "own_study: cells() has failed"),
    "no claims": (SIMULATED.replace("return [MEAN.claim", "return [1, MEAN.claim"), "own_study: claims() has failed"),
    "a claim that is not stated": (
        SIMULATED.replace("[MEAN.claim", '[gt.Statement("mine/other", "", "", "upper bound").claim'),
        "own_study: claims(table) has a claim about 'mine/other', which its file does not state",
    ),
    "half a pair": (
        EXACT.replace("$x^2=", r"$\left(x^2="),
        r"the formula of mine/square: '\\left(x^2=x\\cdot x' cannot be typeset: ExtraLeft",
    ),
    "no margin": (
        re.sub(r"    margin=gt.Margin.*\n", "", SIMULATED),
        "HERE/own_study.py: a statement of kind 'equality' needs a margin: give mine/mean margin=Margin(value, because), ",
    ),
    "a mean that is no number": (
        SIMULATED.replace('"estimate": means.mean()', '"estimate": np.nan'),
        "own_study: claims() has failed: ValueError: evidence must be finite",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_is_no_study_is_one_line(refused, kind):
    text, message = BAD[kind]
    assert refused(text).startswith(message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rng.standard_normal(", "np.random.normal(size=", "own_study: simulate() drew from np.random, whose numbers all of a"),
        ("rng.standard_normal(", "(np.random.seed(3) or np.random.normal)(size=", "own_study: simulate() drew from np.random"),
        ("means = np", "np.random.shuffle(results)\n    means = np", "own_study: rows() drew from np.random"),
    ],
)
def test_draws_that_all_of_the_program_shares_are_refused(refused, old, new, message):
    """They would be other numbers in each run, and in each worker."""
    line = refused(SIMULATED.replace(old, new))
    assert line.startswith(message)
    assert "Draw from the generator rng" in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("numpy.py", "HERE/numpy.py: there is another module 'numpy', give the file another name"),
        ("wave.py", "HERE/wave.py: there is another module 'wave', give the file another name"),
        ("own_study.txt", "HERE/own_study.txt cannot be run: ImportError: HERE/own_study.txt is not a Python file"),
    ],
)
def test_a_file_of_another_name_is_one_line(refused, name, message):
    assert refused(EXACT, name) == message
    assert sys.modules.get("numpy").__file__.endswith("numpy/__init__.py")


def test_what_was_finished_is_kept(refused, tmp_path):
    """The first cell's chunk stands there when the second has failed."""
    text = EXACT.replace(
        "def compare", 'def cells(quick):\n    return [Cell({"last": last}) for last in (False, True)]\n\n\ndef compare'
    )
    text = text.replace(
        "    for x in NUMBERS", '    if settings["last"]:\n        raise RuntimeError("no")\n    for x in NUMBERS'
    )
    text = text.replace("import grpo_theory as gt\n", "import grpo_theory as gt\nfrom grpo_theory.harness import Cell\n")
    assert re.fullmatch(
        r"own_study: compare\(\) has failed: RuntimeError: no \(line \d+\); what was finished is kept", refused(text)
    )
    assert len(list((tmp_path / "out" / "chunks").rglob("0000.json"))) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("figure = Figure()", "1 / 0", "own_study: draw() has failed: ZeroDivisionError: division by zero (line "),
        ("return figure", "return 3", "own_study: draw(table) must return a figure of matplotlib, got int"),
        (
            "return figure",
            'figure.suptitle(r"$\\nothing{$")\n    return figure',
            "own_study: the figure cannot be written: ValueError: ",
        ),
    ],
)
def test_a_figure_that_fails_leaves_table_and_verdicts(refused, tmp_path, old, new, message):
    line = refused(EXACT.replace(old, new))
    assert line.startswith(message)
    assert line.endswith("; table, verdicts and page are kept, without the figure")
    assert {"own_study.parquet", "claims.csv", "report.html"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert "<figure" not in (tmp_path / "out" / "report.html").read_text()


def test_two_studies_of_one_name_or_one_statement_are_refused(tmp_path, capsys):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        write(folder)
    files = [str(tmp_path / "own_squares.py"), str(tmp_path / "other" / "own_squares.py")]
    assert main(["verify", *files, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"grpo-theory verify: {files[1]}: {files[0]} is a study of the same name, rename one file\n"
    (tmp_path / "own_more.py").write_text(EXACT.replace("for every x", "for some x"))
    assert main(["verify", files[0], str(tmp_path / "own_more.py"), "--out", str(tmp_path / "out")]) == 2
    said = f"own_more.py: {files[0]} states something else under the id 'mine/square', rename one\n"
    assert capsys.readouterr().err.endswith(said)


def moved(study, folder):
    """Return a study's sources as another machine has them: their files are not there."""
    return tuple(dataclasses.replace(source, path=str(folder / "gone" / Path(source.path).name)) for source in study.sources)


def test_the_files_travel_with_what_they_import(tmp_path, monkeypatch):
    """A process that has none of the files computes the same from their texts."""
    write(tmp_path)
    study = read_study(tmp_path / "own_squares.py")
    assert [source.module for source in study.sources] == ["own_numbers", "own_squares"]
    (cell,) = study.cells(True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        there = moved(study, tmp_path)
        data, _ = pool.submit(compute_chunk, there, cell, 0, 0, (), made_with(study.sources)).result()
    pd.testing.assert_frame_equal(pd.DataFrame(data), pd.DataFrame(study.compute(cell.settings, None, 0)))
    assert len(data) == 4


EDITS = {
    "what is compared": ("own_squares.py", "1.01", "1.02", True),
    "what it imports": ("own_numbers.py", "(2, 3)", "(2, 5)", True),
    "what it does not import": ("own_means.py", "16", "18", False),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_makes_stale_what_depends_on_it(tmp_path, edit):
    name, old, new, stale = EDITS[edit]
    write(tmp_path)
    before = study_fingerprint(read_study(tmp_path / "own_squares.py"))
    forget(sys.modules)
    path = tmp_path / name
    assert path.read_text().count(old) >= 1
    path.write_text(path.read_text().replace(old, new, 1))
    assert (study_fingerprint(read_study(tmp_path / "own_squares.py")) != before) == stale


def test_where_a_file_lies_does_not_make_it_stale(tmp_path):
    write(tmp_path)
    study = read_study(tmp_path / "own_squares.py")
    elsewhere = dataclasses.replace(study, sources=moved(study, tmp_path))
    assert study_fingerprint(elsewhere) == study_fingerprint(study)


def test_a_package_beside_it_is_imported_and_counts(tmp_path):
    write(tmp_path)
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "numbers.py").write_text(NUMBERS)
    path = tmp_path / "own_packed.py"
    path.write_text(EXACT.replace("from own_numbers", "from own_package.numbers"))
    study = read_study(path)
    assert len(study.compute({}, None, 0)) == 4
    before = study_fingerprint(study)
    forget(sys.modules)
    (tmp_path / "own_package" / "numbers.py").write_text("NUMBERS = (2, 3, 4)\n")
    store._code.cache_clear()  # as in a new process
    assert study_fingerprint(read_study(path)) != before


def test_an_error_can_be_sent_between_processes(tmp_path):
    """What a user raises may be of any class; what is told is text."""
    text = "class Odd(Exception):\n    def __init__(self, a, b):\n        super().__init__(a)\n\n\n"
    write(tmp_path)
    path = tmp_path / "own_odd.py"
    path.write_text(
        EXACT.replace('WORDS = "', f'{text}WORDS = "').replace("for x in NUMBERS", 'raise Odd("so", 2)\n    for x in NUMBERS')
    )
    study = read_study(path)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        future = pool.submit(compute_chunk, study.sources, study.cells(True)[0], 0, 0, (), made_with(study.sources))
        with pytest.raises(StudyFileError, match=r"own_odd: compare\(\) has failed: Odd: so \(line \d+\)"):
            future.result()
    with pytest.raises(StudyFileError, match="Odd: so"):
        load_study(study.sources).compute({}, None, 0)
