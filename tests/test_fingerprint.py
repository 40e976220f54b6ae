"""Fingerprints of code: an edit makes stale what depends on it, a comment nothing, and neither does an edit elsewhere."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from grpo_theory.estimation import SourceFile, find
from grpo_theory.evidence import Margin
from grpo_theory.harness.store import estimator_fingerprint, study_fingerprint
from simulations import __main__ as command
from simulations.collection import studies

ROOT = Path(__file__).resolve().parents[1]

USE = """
import importlib, json, sys
from pathlib import Path
from types import SimpleNamespace
import grpo_theory
from grpo_theory.harness import store

top, rounds = Path(sys.argv[1]), json.loads(sys.argv[2])
assert Path(grpo_theory.__file__).is_relative_to(top)
assert Path(store.__file__).is_relative_to(top)


def fingerprints():
    fresh = importlib.reload(store)  # as in a new process: nothing is remembered but what a text says
    studies = ("gradient.u_statistic", "coverage.coverage_pairs", "gradient.full_gradient")
    made = [SimpleNamespace(sources=(), module=f"simulations.{study}", statements=()) for study in studies]
    return [*map(fresh.study_fingerprint, made), fresh.checkout_checksum("simulations")]


before, changed = fingerprints(), []
for edits in rounds:
    contents = {name: (top / name).read_text() for name, _ in edits}
    for name, text in edits:
        (top / name).write_text(text)
    changed.append([one != other for one, other in zip(fingerprints(), before, strict=True)])
    for name, text in contents.items():
        (top / name).write_text(text)
print(json.dumps(changed))
"""

CODE = "\nEXTRA = 1\n"
HARMLESS = (
    ("simulations/gradient/error_law.py", CODE),
    ("grpo_theory/harness/runner.py", CODE),
    ("grpo_theory/page/report.py", CODE),
    ("grpo_theory/evidence/verdicts.py", CODE),
)
"""Edits of what the studies do not import, and of what shows, runs or judges: all at once."""
ROUNDS = {
    HARMLESS: [False, False, False, True],
    (("grpo_theory/problem/point.py", CODE),): [True, True, True, True],
    (("grpo_theory/harness/study.py", CODE),): [True, True, True, True],
    (("simulations/gradient/u_statistic.py", CODE),): [True, False, False, True],
    (("simulations/coverage/narrowing.py", CODE),): [False, True, False, True],
    (("simulations/gradient/baselines.py", CODE),): [False, False, True, True],
    (("grpo_theory/data/arithmetic.json", "\n"),): [True, True, True, True],
}
"""Files and edits -> whether they change the fingerprints of three studies, and the checksum by which a cluster's workers are
known. The studies are on a U-statistic, on pairs of runs and on sampled answers."""


def test_a_study_is_fingerprinted_with_what_it_imports_and_the_library(tmp_path):
    for folder in ("grpo_theory", "simulations"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.nb[ic]"))
    rounds = json.dumps([[(path, (ROOT / path).read_text() + change) for path, change in edits] for edits in ROUNDS])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path), rounds], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert dict(zip(ROUNDS, json.loads(done.stdout), strict=True)) == ROUNDS


KERNELS = """
import numba
import numpy as np
import grpo_theory as gt
import helpers_of_mine
from helpers_of_mine import RATE, shift

HALF = 0.5
TABLE = np.array([0.25, 0.5])

@numba.njit
def own(z):
    return z - 0.0

def enclosing(share):
    @gt.estimator("enclosed")
    def enclosed(batch, advantages):
        for b in range(batch.rewards.shape[0]):
            for g in range(batch.rewards.shape[1]):
                advantages[b, g] = batch.rewards[b, g] - share

enclosing(0.4)

@gt.estimator("near", parameters={"weight": 0.3})
def near(batch, advantages):
    '''A = Z - w/2.'''
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = own(batch.rewards[b, g]) - HALF * batch.parameters[0] - TABLE[0]

@gt.estimator("far")
def far(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = shift(batch.rewards[b, g]) - RATE - helpers_of_mine.far_shift(0.0)

composed = gt.compose("composed", advantage=near, ratio="token", clip="cap")
"""
HELPERS = """
import numba

RATE = 0.1

@numba.njit
def shift(z):
    return z - 0.125

@numba.njit
def far_shift(z):
    return shift(z) - 0.0625
"""
NAMES = ("near", "far", "enclosed", "composed")
EDITS = {
    "a comment": ("kernels", "- TABLE[0]", "-  TABLE[0]  # a remark", ()),
    "the formula": ("kernels", "own(batch.rewards[b, g]) -", "own(batch.rewards[b, g]) +", ("near", "composed")),
    "a function beside it": ("kernels", "return z - 0.0", "return z - 1.0", ("near", "composed")),
    "a default": ("kernels", '"weight": 0.3', '"weight": 0.4', ("near", "composed")),
    "a part": ("kernels", 'clip="cap"', 'clip="by sign"', ("composed",)),
    "what is enclosed": ("kernels", "enclosing(0.4)", "enclosing(0.6)", ("enclosed",)),
    "another file's dotted function": ("helpers", "- 0.0625", "- 0.5", ("far",)),
    "another file's constant": ("helpers", "RATE = 0.1", "RATE = 0.2", ("far",)),
}


@pytest.fixture
def workshop(registry, tmp_path, monkeypatch):
    """A function that runs the two files and returns the fingerprints."""
    monkeypatch.syspath_prepend(tmp_path)
    paths = {name: tmp_path / f"{name}_of_mine.py" for name in ("helpers", "kernels")}

    def fingerprints(**texts):
        for name in NAMES:
            registry.pop(name, None)
        for name, path in paths.items():
            sys.modules.pop(path.stem, None)
            path.write_text(texts.get(name, {"helpers": HELPERS, "kernels": KERNELS}[name]))
            SourceFile.read(path).load()
        return {name: estimator_fingerprint(find(name)) for name in NAMES}

    yield fingerprints
    for path in paths.values():
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_kernel_has_another_fingerprint_and_others_keep_theirs(workshop, edit):
    file, old, new, expected = EDITS[edit]
    text = {"helpers": HELPERS, "kernels": KERNELS}[file]
    assert text.count(old) == 1
    before = workshop()
    after = workshop(**{file: text.replace(old, new)})
    assert {name for name in NAMES if before[name] != after[name]} == set(expected)
    assert workshop() == before


PAIR = """
import grpo_theory as gt

@gt.estimator("first")
def first(batch, advantages):
    advantages[:, :] = batch.rewards - 0.5

@gt.estimator("second")
def second(batch, advantages):
    advantages[:, :] = batch.rewards - 0.25
"""


def test_only_the_chunks_of_an_edited_kernel_are_computed_again(registry, tmp_path, monkeypatch, capsys):
    """From the command line: a comment costs nothing, an edit costs the kernel's own chunks, and draws stay what they were."""
    studies()  # read while all estimators are there, because some studies look theirs up when they are imported
    for name in set(registry) - {"rloo"}:
        del registry[name]
    monkeypatch.setattr("simulations.gradient.estimators.PROBLEMS", ("two-arms", "tabular"))
    monkeypatch.setattr("simulations.gradient.estimators.GROUP_SIZES", (4,))
    monkeypatch.setattr("simulations.gradient.cells.QUICK_RESPONSES", 1 << 14)
    path = tmp_path / "pair_of_mine.py"
    arguments = ["run", "estimators", "--quick", "--results", str(tmp_path), "--kernels", str(path)]

    def run(text):
        path.write_text(text)
        assert command.main(arguments) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("estimators: ")]
        table = pd.read_parquet(tmp_path / "estimators.parquet").set_index("estimator")
        files = {file: file.stat().st_mtime_ns for file in tmp_path.glob("chunks/estimators/*/*.json")}
        return int(line.split()[1]), table[["estimate", "prediction"]], files

    computed, table, files = run(PAIR)
    assert computed == len(files) == 3 * 2
    assert run(PAIR.replace("- 0.5", "- 0.5  # half"))[::2] == (0, files)
    computed, other, touched = run(PAIR.replace("- 0.5", "- 0.625"))
    assert computed == 2
    assert {file for file in files if touched[file] != files[file]} == {
        file for file in files if json.loads(file.read_text())["body"]["settings"]["estimators"] == ["first"]
    }
    pd.testing.assert_frame_equal(other.drop("first"), table.drop("first"), check_exact=True)
    assert (other.loc["first"] != table.loc["first"]).all(axis=None)
    sys.modules.pop("pair_of_mine")


def test_of_statements_elsewhere_what_decides_counts():
    study = studies()["lemma_14"]
    first, *others = study.statements

    def fingerprint(**changed):
        return study_fingerprint(replace(study, statements=(replace(first, **changed), *others)))

    assert fingerprint(text="another text", source="elsewhere") == study_fingerprint(study)
    assert fingerprint(kind="ordering") != study_fingerprint(study)
    assert fingerprint(margin=Margin(0.1, "a tenth")) != study_fingerprint(study)
