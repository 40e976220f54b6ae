"""Of a statement in a file id, kind and margin count; of a study's own file the words of statements do not."""

import ast
from dataclasses import replace

import pytest

from grpo_theory.evidence import Margin
from grpo_theory.harness.fingerprint import reduced, study_fingerprint
from simulations.collection import studies

TEXT = '''"""A title."""
import grpo_theory as gt
FIRST = gt.Statement("X1", "arXiv 1", "a <= b", "upper bound", margin=gt.Margin(0.02, "2% is not seen"))
SHARE = 0.5
OWN = {}
OWN["n"] = 1
"""A remark."""
gt.compose("own", advantage="rloo")
POWERLESS = {("X1", "here"): "it is so"}

@gt.check(FIRST, cases=[{"n": 1}], broken={"n": 2})
def one(n):
    return SHARE * n, OWN["n"]

@gt.check(FIRST, cases=[{"n": 1}], broken={"n": 2})
def other(n):
    return n, 1.0
'''
EDITS = {
    "the title": ("A title", "Another", ""),
    "words": ("2% is not seen", "seen by nobody", ""),
    "a remark": ("A remark", "Another", ""),
    "a reason": ("it is so", "it is not", ""),
    "a comment": ("SHARE = 0.5", "SHARE = 0.5  # half", ""),
    "a constant": ("SHARE = 0.5", "SHARE = 0.6", "one all"),
    "what a constant was before": ("OWN = {}", "OWN = {1: 2}", "one other all"),
    "an effect": ('advantage="rloo"', 'advantage="grpo"', "one other all"),
    "what is wrong": ('cases=[{"n": 1}], broken={"n": 2})\ndef one', 'cases=[{"n": 1}], broken={"n": 3})\ndef one', "one all"),
    "its cases": ('cases=[{"n": 1}], broken={"n": 2})\ndef one', 'cases=[{"n": 4}], broken={"n": 2})\ndef one', "all"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_counts_of_a_file(edit):
    old, new, expected = EDITS[edit]
    assert TEXT.count(old) == 1
    changed = [part or "all" for part in ("one", "other", "") if forms(TEXT)[part] != forms(TEXT.replace(old, new))[part]]
    assert changed == expected.split()


def forms(text):
    return {part: ast.dump(reduced(text, part)) for part in ("one", "other", "")}


def test_what_decides_counts_where_statements_are_in_a_file():
    study = studies()["lemma_14"]
    first, *others = study.statements

    def fingerprint(**changed):
        return study_fingerprint(replace(study, statements=(replace(first, **changed), *others)))

    assert fingerprint(text="another text", source="elsewhere") == study_fingerprint(study)
    assert fingerprint(kind="ordering") != study_fingerprint(study)
    assert fingerprint(margin=Margin(0.1, "a tenth")) != study_fingerprint(study)
