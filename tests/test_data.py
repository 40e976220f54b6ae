"""The arithmetic set: what ships, and that it is what it says."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.data import questions
from grpo_theory.data.questions import PROMPTS, arithmetic

DATA = gt.data.arithmetic()


def test_shapes_and_ranges():
    assert len(DATA.questions) == 500
    assert len(set(DATA.questions)) == 500
    assert DATA.answers.shape == DATA.categories.shape == (500,)
    assert set(DATA.answers.tolist()) <= set(range(10))
    assert DATA.hidden.shape == (3, 500, 576)
    assert DATA.head.shape == (10, 576)
    assert np.isfinite(DATA.hidden).all()
    assert np.isfinite(DATA.head).all()
    assert DATA.digit_mass.shape == (3, 500)
    assert DATA.digit_mass.min() >= 0.0
    assert DATA.digit_mass.max() <= 1.0 + 1e-6


def test_answers_are_right():
    """Each question is an expression whose value is its answer; a question changed by hand would fail."""
    values = [eval(question.replace("/", "//"), {"__builtins__": {}}) for question in DATA.questions]
    assert values == DATA.answers.tolist()


def test_five_categories_of_100():
    assert len(DATA.category_names) == 5
    assert np.bincount(DATA.categories).tolist() == [100] * 5
    operations = {
        "two-step": r"\d+([+-]\d+){2}",
        "three-step": r"\d+([+-]\d+){3}",
        "multiplication": r"\d+\*\d+([+-]\d+)?|\d+[+-]\d+\*\d+",
        "division": r"\d+/\d+",
        "parentheses": r"[\d()+-]*\([\d+-]+\)[\d()+-]*",
    }
    for question, category in zip(DATA.questions, DATA.categories.tolist(), strict=True):
        assert re.fullmatch(operations[DATA.category_names[category]], question), question


@pytest.mark.parametrize("name", PROMPTS)
def test_the_problem_is_the_models_head_over_its_hidden_states(name):
    problem = gt.gallery.problem(f"lm-{name}")
    bandit, policy = problem.bandit, problem.policy
    assert (bandit.n_prompts, bandit.n_responses, policy.dimension) == (500, 10, 5760)
    assert bandit.prompt_weights.tolist() == [1 / 500] * 500
    assert bandit.mean_reward.argmax(axis=1).tolist() == DATA.answers.tolist()
    assert bandit.mean_reward.sum() == 500.0
    hidden = DATA.hidden[PROMPTS.index(name)].astype(np.float64)
    expected = softmax(hidden @ DATA.head.astype(np.float64).T, axis=1)
    np.testing.assert_allclose(policy.probabilities(problem.theta), expected, rtol=1e-12)


def test_the_policies_rise_in_quality():
    problems = [gt.gallery.problem(f"lm-{name}") for name in PROMPTS]
    values = [gt.moments(problem, problem.theta).value.mean() for problem in problems]
    assert values == sorted(values)
    assert values[0] > 0.1  # better than guessing one digit in ten
    assert values[-1] < 0.999


@pytest.mark.parametrize("name", ["arithmetic", "long_answers"])
def test_the_scripts_draw_the_questions_that_ship(name, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "tools" / "language_model")
    script, shipped = importlib.import_module(f"make_{name}"), getattr(gt.data, name)()
    drawn = script.CATEGORIES, script.PER_CATEGORY, script.draw_question, script.SEED
    asked, examples = importlib.import_module("question_sets").draw_questions(*drawn)
    expected = shipped.categories.tolist(), shipped.questions, shipped.answers.tolist()
    assert asked == list(zip(*expected, strict=True))
    assert not {question for some in examples.values() for question, _ in some} & set(shipped.questions)
    assert script.describe().items() <= shipped.provenance.items()


def test_it_is_loaded_once():
    assert arithmetic() is DATA


def test_a_damaged_file_is_refused(tmp_path, monkeypatch):
    folder = questions.files("grpo_theory.data")
    content = bytearray((folder / "arithmetic.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "arithmetic.npz").write_bytes(content)
    (tmp_path / "arithmetic.json").write_text((folder / "arithmetic.json").read_text())
    monkeypatch.setattr(questions, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"arithmetic\.npz must have sha256 \w{64}, got \w{64}: reinstall the package"):
        arithmetic.__wrapped__()


def test_provenance_tells_where_it_comes_from():
    assert {"model", "sha256", "licence", "versions", "seed", "made_by"} <= set(DATA.provenance)
    assert json.dumps(DATA.provenance)
