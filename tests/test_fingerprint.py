"""Fingerprints of code: an edit makes stale what depends on it, a comment nothing, and neither does an edit elsewhere."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_theory.estimation import SourceFile, find
from grpo_theory.evidence import Margin
from grpo_theory.harness import store
from grpo_theory.harness.store import study_fingerprint
from simulations.collection import studies
from simulations.gradient.cells import estimator_fingerprint

ROOT = Path(__file__).resolve().parents[1]

STUDIES = ("gradient.u_statistic", "coverage.coverage_pairs", "gradient.full_gradient")
SHOWING = ("grpo_theory/harness/runner.py", "grpo_theory/page/report.py", "grpo_theory/evidence/verdicts.py")
ROUNDS = {
    ("simulations/gradient/error_law.py", *SHOWING): [False, False, False, True],
    ("grpo_theory/problem/point.py",): [True, True, True, True],
    ("grpo_theory/harness/study.py",): [True, True, True, True],
    ("simulations/gradient/u_statistic.py",): [True, False, False, True],
    ("simulations/coverage/narrowing.py",): [False, True, False, True],
    ("simulations/gradient/baselines.py",): [False, False, True, True],
    ("grpo_theory/data/arithmetic.json",): [True, True, True, True],
}
"""Edited files -> whether the fingerprints of the studies change, and the checksum by which a cluster's workers are known.

Those of the first row are what the studies do not import, and what shows, runs or judges.
"""


def test_a_study_is_fingerprinted_with_what_it_imports_and_the_library(tmp_path, monkeypatch):
    for folder in ("grpo_theory", "simulations"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.nb[ic]"))
    monkeypatch.setattr(store, "folder_of", lambda package: tmp_path / package)
    for name in ("checkout_checksum", "_code"):
        monkeypatch.setattr(store, name, getattr(store, name).__wrapped__)  # without what was remembered

    def fingerprints():
        made = [SimpleNamespace(sources=(), module=f"simulations.{study}", statements=()) for study in STUDIES]
        return [*map(study_fingerprint, made), store.checkout_checksum("simulations")]

    before = fingerprints()
    for names, changed in ROUNDS.items():
        contents = {tmp_path / name: (tmp_path / name).read_text() for name in names}
        for path, text in contents.items():
            path.write_text(text + "\n")
        assert [one != other for one, other in zip(fingerprints(), before, strict=True)] == changed, names
        for path, text in contents.items():
            path.write_text(text)


KERNELS = """
import numba
import grpo_theory as gt

HALF = 0.5

@numba.njit
def own(z):
    return z - 0.0

def enclosing(share):
    @gt.estimator("enclosed")
    def enclosed(batch, advantages):
        advantages[:, :] = batch.rewards - share

enclosing(0.4)

@gt.estimator("near", parameters={"weight": 0.3})
def near(batch, advantages):
    '\''A = Z - w/2.'\''
    for b in range(batch.rewards.shape[0]):
        for g in range(batch.rewards.shape[1]):
            advantages[b, g] = own(batch.rewards[b, g]) - HALF * batch.parameters[0]

composed = gt.compose("composed", advantage=near, ratio="token", clip="cap")
"""
NAMES = ("near", "enclosed", "composed")
EDITS = {
    "a comment": ("- HALF *", "-  HALF  *", ()),
    "the formula": ("own(batch.rewards[b, g]) -", "own(batch.rewards[b, g]) +", ("near", "composed")),
    "a function beside it": ("return z - 0.0", "return z - 1.0", ("near", "composed")),
    "a default": ('"weight": 0.3', '"weight": 0.4', ("near", "composed")),
    "a part": ('clip="cap"', 'clip="by sign"', ("composed",)),
    "what is enclosed": ("enclosing(0.4)", "enclosing(0.6)", ("enclosed",)),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_kernel_has_another_fingerprint_and_others_keep_theirs(registry, tmp_path, edit):
    old, new, expected = EDITS[edit]
    path = tmp_path / "kernels_of_mine.py"

    def fingerprints(text):
        for name in NAMES:
            registry.pop(name, None)
        sys.modules.pop(path.stem, None)
        path.write_text(text)
        SourceFile.read(path).load()
        return {name: estimator_fingerprint(find(name)) for name in NAMES}

    assert KERNELS.count(old) == 1
    before, after = fingerprints(KERNELS), fingerprints(KERNELS.replace(old, new))
    assert {name for name in NAMES if before[name] != after[name]} == set(expected)
    assert fingerprints(KERNELS) == before
    sys.modules.pop(path.stem)


def test_of_statements_elsewhere_what_decides_counts():
    study = studies()["lemma_14"]
    first, *others = study.statements

    def fingerprint(**changed):
        return study_fingerprint(replace(study, statements=(replace(first, **changed), *others)))

    assert fingerprint(text="another text", source="elsewhere") == study_fingerprint(study)
    assert fingerprint(kind="ordering") != study_fingerprint(study)
    assert fingerprint(margin=Margin(0.1, "a tenth")) != study_fingerprint(study)
