"""Theorems of papers that nobody of us wrote, in the form of a check: each comes out as it was worked out by hand."""

from pathlib import Path

import pandas as pd
import pytest
from test_sides import computed

from grpo_theory.evidence import judge
from grpo_theory.page.command import main

FOLDER = Path(__file__).parents[1] / "examples" / "theorems"
ANSWERS = {
    "adam_scale": {"hidden biases/Adam": {"confirmed"}},
    "clip_bias": {
        "spurious/no clip": {"confirmed"},
        "spurious/clip": {"confirmed"},
        "spurious/likely": {"confirmed", "refuted"},
    },
    "entropy_mechanism": {
        "entropy/theorem 1": {"confirmed"},
        "entropy/theorem 2": {"confirmed"},
        "entropy/theorem 1 on a tree": {"refuted"},
        "entropy/theorem 1 on a tree, corrected": {"confirmed"},
    },
    "global_normalisation": {"global normalisation/vanishes": {"confirmed"}},
    "success_amplification": {
        "amplification/recursion": {"confirmed"},
        "amplification/fixed point": {"confirmed"},
        "amplification/GRPO stays": {"confirmed"},
    },
    "vanishing_gradient": {"vanishing/theorem 1": {"confirmed"}, "vanishing/constant": {"confirmed"}},
}


def test_every_example_has_its_answer():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(ANSWERS)


def test_a_new_study_runs_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "https://arxiv.org/abs/2505.15201"]) == 0
    assert main(["verify", "paper_2505_15201.py"]) == 0
    claims = pd.read_csv("verified/claims.csv")
    assert (claims["verdict"] == "confirmed").all()
    assert (claims["control"] == "refuted").all()
    assert main(["new", "2505.15201"]) == main(["new", "pkpo"]) == 2
    told = capsys.readouterr().err
    assert "paper_2505_15201.py: File exists" in told
    assert "must be a number at arXiv" in told


@pytest.mark.parametrize("name", ANSWERS)
def test_the_example_comes_out_right(name, registry):
    study, table = computed(FOLDER / f"{name}.py")
    found = judge(study.claims(table))
    assert found.groupby("id")["verdict"].agg(set).to_dict() == ANSWERS[name]
    assert found["power"].all()
