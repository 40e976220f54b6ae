"""Statements are words: what is said of a theorem may be mended, and results stay; what decides it may not."""

from dataclasses import replace

import pytest

from grpo_theory.evidence import Margin
from grpo_theory.harness.codebase import Codebase
from grpo_theory.harness.fingerprint import study_fingerprint
from grpo_theory.harness.normal_form import read
from simulations.collection import studies

OWN = frozenset({"grpo_theory", "simulations"})
TEXT = '''"""A title."""

import numpy as np
import grpo_theory as gt
from grpo_theory.evidence import Margin, Statement
from grpo_theory.evidence import Statement as Stated
from simulations.sources import OURS, derived
from simulations.cells import SIZES

BOUND = "a <= b"
WIDE = f"{BOUND}, widely"
SHARE = 0.5
FIRST = Statement(
    "X1", "arXiv 1, Lemma 2", f"{WIDE}", "upper bound", "a is a number", r"$a\\le b$", Margin(0.02, "2% is not seen"), OURS
)
SECOND = {
    size: gt.Statement(
        id=f"X2/{size}", source=derived(3), text=f"{BOUND} at {size}", kind="rate", margin=gt.Margin(value=SHARE, because="half"),
        open="not yet",
    )
    for size in SIZES
}
THIRD = (Stated("X3", "here", "c", "identity", whose="ours"), np.zeros(3))
POWERLESS = {("X1", "here"): "it is so"}


def compare(settings):
    yield FIRST.compare("all", SHARE, 1.0, broken=2.0)
'''
WORDS = {
    "the text": ("a <= b", "a is at most b"),
    "what the text is made of": (", widely", ", by far"),
    "the formula": (r"$a\le b$", r"$a<b$"),
    "the source": ("arXiv 1, Lemma 2", "arXiv 2, Lemma 3"),
    "the section of the proof": ("derived(3)", "derived(4)"),
    "an assumption": ("a is a number", "a is positive"),
    "the argument of a margin": ("2% is not seen", "nobody sees 2%"),
    "the argument of a margin by its name": ('because="half"', 'because="a half"'),
    "whose it is": ('whose="ours"', 'whose="correction"'),
    "where words come from": ("simulations.sources", "simulations.origins"),
    "why it is open": ("not yet", "never"),
    "a reason": ("it is so", "it cannot be told"),
    "the title": ("A title.", "Another title."),
}
CODE = {
    "an id": ('"X1", "arXiv', '"X4", "arXiv'),
    "an id of many": ('f"X2/{size}"', 'f"X5/{size}"'),
    "a kind": ('"upper bound"', '"ordering"'),
    "a kind by its name": ('kind="rate"', 'kind="law"'),
    "a margin": ("Margin(0.02", "Margin(0.03"),
    "a margin's constant": ("SHARE = 0.5", "SHARE = 0.6"),
    "what it runs over": ("for size in SIZES", "for size in SIZES[1:]"),
    "what stands beside it": ("np.zeros(3)", "np.zeros(4)"),
    "what is compared": ("broken=2.0", "broken=3.0"),
    "where a constant is from": ("simulations.cells", "simulations.problems"),
}


def checksum(text, study=True):
    return read(text, OWN, study).checksum


@pytest.mark.parametrize("edit", WORDS)
def test_words_may_be_mended(edit):
    old, new = WORDS[edit]
    assert TEXT.count(old) == 1
    assert checksum(TEXT.replace(old, new)) == checksum(TEXT)


@pytest.mark.parametrize("edit", CODE)
def test_what_decides_may_not(edit):
    old, new = CODE[edit]
    assert TEXT.count(old) == 1
    assert checksum(TEXT.replace(old, new)) != checksum(TEXT)


def test_only_the_librarys_statements_are_words():
    for names in ("from theirs import Statement", "from grpo_theory.evidence import Claim\nStatement = print"):
        text = f'{names}\n\nA = Statement("X1", "here", "a")\n'
        assert checksum(text) != checksum(text.replace('"a"', '"b"'))
    starred = 'from grpo_theory.evidence import Statement\n\nA = Statement(*("X1", "here"), "a", "identity")\n'
    assert checksum(starred) != checksum(starred.replace('"a"', '"b"')), "who knows which argument that is"


def test_a_constant_that_others_may_import_is_code():
    """Nobody imports from a study; what studies share may hold words that are data elsewhere."""
    mended = TEXT.replace("a <= b", "a is at most b")
    assert checksum(mended, study=False) != checksum(TEXT, study=False)
    used = TEXT.replace("SHARE, 1.0", "len(BOUND), 1.0")
    assert checksum(used) != checksum(used.replace("a <= b", "a is at most b")), "it is computed with"


def test_a_constant_that_is_computed_stays():
    text = TEXT.replace('BOUND = "a <= b"', "BOUND = gt.estimators()")
    assert checksum(text) != checksum(text.replace("gt.estimators()", "gt.gallery.names()"))


def test_where_words_come_from_is_no_dependency():
    """Sources are imported for the words of statements alone; problems are not."""
    reading = read(TEXT, OWN, True)
    assert [node.module for node in reading.imports if hasattr(node, "module")] == [
        *("grpo_theory.evidence", "grpo_theory.evidence", "simulations.cells"),
    ]
    found = Codebase(("simulations",)).dependencies("simulations.training.lemma_14")
    assert "simulations.sources" not in found
    assert "simulations.statements" in found
    assert {"grpo_theory.evidence.claim", "grpo_theory.theory.bounds", "simulations.training.lemma_14"} <= set(found)


def test_what_decides_counts_where_statements_are_in_a_file():
    study = studies()["lemma_14"]
    first, *others = study.statements

    def fingerprint(**changed):
        return study_fingerprint(replace(study, statements=(replace(first, **changed), *others)))

    assert fingerprint(text="another text", source="elsewhere") == study_fingerprint(study)
    assert fingerprint(kind="ordering") != study_fingerprint(study)
    assert fingerprint(margin=Margin(0.1, "a tenth")) != study_fingerprint(study)
