"""The catalogue of claims: every statement of the papers is there, and is decided by a study or says why not."""

import itertools
import re
from collections import Counter

import pytest

from grpo_theory.evidence import KINDS, PARTS, Evidence, Margin, Statement
from grpo_theory.evidence.claim import WHOSE
from simulations.collection import collection

COLLECTION = collection()
CATALOGUE, parts_of = COLLECTION.statements, COLLECTION.parts_of
PAPERS = {"U": 18, "T": 15, "N": 12, "R": 7}
"""The beginnings of the papers' ids, and how many statements the list of claims has."""
HEADS = [name.partition("/")[0] for name in CATALOGUE]


def test_the_papers_come_first_with_every_statement_and_each_stands_before_its_parts():
    runs = [head for head, _ in itertools.groupby(HEADS)]
    assert len(set(runs)) == len(runs), "what has one head stands together"
    papers = [f"{letter}{number + 1}" for letter, count in PAPERS.items() for number in range(count)]
    assert runs[: len(papers)] == [head for head in runs if re.fullmatch(r"[UTNR]\d+", head)] == papers
    assert all(CATALOGUE[name].id == name for name in papers), "a part has a statement"
    for whole, names in itertools.groupby(CATALOGUE, lambda name: name.partition("/")[0]):
        _, *parts = [CATALOGUE[name] for name in names]
        assert whole not in [one.id for one in parts]
        assert [one.whose for one in parts] == sorted((one.whose for one in parts), key=WHOSE.index)


def test_statements_say_what_they_are_and_whose():
    """What stands in our derivations is no paper's; a question beside a paper names the paper, and says that it is ours.

    A theorem is refuted by a counterexample; what a paper measured on its own model is not refuted by another model.
    """
    wrong = []
    for one in CATALOGUE.values():
        is_head, ours = re.fullmatch(r"[UTNR]\d+", one.id), one.whose in ("correction", "ours")
        beside = one.source.startswith(("docs/", "question beside", "beyond", "premise of")) or one.source == "measured"
        theorem = re.search(r"Theorem|Proposition|Corollary|Lemma|Property|decomposition", one.source)
        holds = {
            "a kind": one.kind in KINDS or (one.kind == PARTS and len(parts_of(one)) >= 2),
            "a source": bool(one.source) and (not is_head or one.id[0] == "R" or one.source.startswith("arXiv ")),
            "a text": bool(one.text) and one.text == one.text.strip(),
            "ours": ours or not (beside or one.id in ("U9/stays", "U9/reported", "U11/normal gap")),
            "derived": one.whose != "correction" or one.source.startswith("docs/derivations.md"),
            "the paper's": one.whose == "paper" or not (is_head or one.measured),
            "measured": not one.measured or (not theorem and one.kind != "identity"),
        }
        wrong += [(one.id, name) for name, found in holds.items() if not found]
    assert wrong == []
    texts = Counter(one.text for one in CATALOGUE.values())
    assert [text for text, count in texts.items() if count > 1] == [], "statements that say the same say in what they differ"


def test_a_statement_is_open_if_and_only_if_no_study_decides_it():
    deciders = COLLECTION.deciders()
    assert set(deciders) <= set(CATALOGUE)
    for statement in CATALOGUE.values():
        assert statement.decided == bool(deciders.get(statement.id)), statement.id
    assert sum(statement.decided for statement in CATALOGUE.values()) > 60


def test_a_claim_has_its_statements_margin_unless_it_brings_its_own():
    statement = Statement("X1", "here", "they agree", "equality", margin=Margin(0.02, "2% misleads nobody"), whose="ours")
    given = statement.claim("linear", Evidence(1.0, 1.0), Evidence(1.0, 2.0, margin=0.5))
    assert (given.evidence.margin, given.control.margin) == (0.02, 0.5)
    assert statement.compare("linear", 1.0, 1.0, broken=2.0).margin == 0.02
    assert statement.compare("linear", 1.0, 1.0, broken=2.0, margin=0.1).margin == 0.1
    held = [statement.compare("linear", 1.0, 3.0, broken=2.0, **given) for given in ({}, {"broken_prediction": 4.0})]
    assert [(one.prediction, one.broken_prediction) for one in held] == [(3.0, 3.0), (3.0, 4.0)]


@pytest.mark.parametrize("kind", ["equality", "rate", "law"])
def test_a_claim_without_any_margin_is_refused_where_the_verdict_depends_on_one(kind):
    statement = Statement("X1", "here", "they agree", kind)
    with pytest.raises(ValueError, match=f"a statement of kind '{kind}' needs a margin: give X1 margin=Margin"):
        statement.claim("linear", Evidence(1.0, 1.0), Evidence(1.0, 2.0))
    with pytest.raises(ValueError, match="needs a margin"):
        statement.compare("linear", 1.0, 1.0, broken=2.0)
    assert statement.claim("linear", Evidence(1.0, 1.0, margin=0.1), Evidence(1.0, 2.0)).evidence.margin == 0.1
