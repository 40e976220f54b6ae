"""Theorems of papers that nobody of us wrote, in the form of a check: each comes out as it was worked out by hand."""

from pathlib import Path

import pytest
from test_sides import computed

from grpo_theory.evidence import judge

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


@pytest.mark.parametrize("name", ANSWERS)
def test_the_example_comes_out_right(name, registry):
    study, table = computed(FOLDER / f"{name}.py")
    found = judge(study.claims(table))
    assert found.groupby("id")["verdict"].agg(set).to_dict() == ANSWERS[name]
    assert found["power"].all()
