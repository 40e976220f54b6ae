"""The data sets: what ships, and that it is what it says."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.data import questions
from grpo_theory.data.questions import PROMPTS, arithmetic
from grpo_theory.problem.gallery import END_OF_ANSWER

DATA, LONG, SAMPLED = gt.data.arithmetic(), gt.data.long_answers(), gt.data.sampled_answers()


def test_answers_are_right():
    """Each question is an expression whose value is its answer; a question changed by hand would fail."""
    values = [eval(question.replace("/", "//"), {"__builtins__": {}}) for question in DATA.questions]
    assert values == DATA.answers.tolist()


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


@pytest.mark.parametrize("name", ["arithmetic", "long_answers"])
def test_the_scripts_draw_the_questions_that_ship(name, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "tools" / "language_model")
    script, shipped = importlib.import_module(f"make_{name}"), getattr(gt.data, name)()
    drawn = script.CATEGORIES, script.PER_CATEGORY, script.draw_question, script.SEED
    asked, examples = importlib.import_module("question_sets").draw_questions(*drawn)
    expected = shipped.categories.tolist(), shipped.questions, shipped.answers.tolist()
    assert asked == list(zip(*expected, strict=True))
    assert not {question for some in examples.values() for question, _ in some} & set(shipped.questions)


def test_a_damaged_file_is_refused(tmp_path, monkeypatch):
    folder = questions.files("grpo_theory.data")
    content = bytearray((folder / "arithmetic.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "arithmetic.npz").write_bytes(content)
    (tmp_path / "arithmetic.json").write_text((folder / "arithmetic.json").read_text())
    monkeypatch.setattr(questions, "files", lambda package: tmp_path)
    with pytest.raises(ValueError, match=r"arithmetic\.npz must have sha256 \w{64}, got \w{64}: reinstall the package"):
        arithmetic.__wrapped__()


def test_longer_answers_are_the_models_head_over_its_hidden_states():
    """Probabilities and the one response that pays, of some answers spelt out digit by digit."""
    problem = gt.gallery.problem("lm-answers")
    responses, policy = list(problem.policy.responses), problem.policy
    assert (problem.bandit.n_prompts, len(responses), policy.n_logits, policy.dimension) == (32, 1111, 1221, 6336)
    found = policy.probabilities(problem.theta)
    prefixes = [(), *((a,) for a in range(10)), *((a, b) for a in range(10) for b in range(10))]
    for m in (0, 13, 31):
        tokens = softmax(LONG.hidden[m].astype(np.float64) @ LONG.head.astype(np.float64).T, axis=1)
        for response in [(END_OF_ANSWER,), (7, END_OF_ANSWER), (4, 2, END_OF_ANSWER), (1, 3, 8)]:
            expected = np.prod([tokens[prefixes.index(response[:t]), response[t]] for t in range(len(response))])
            assert found[m, responses.index(response)] == pytest.approx(expected, rel=1e-10)
        digits = tuple(int(digit) for digit in str(LONG.answers[m]))
        right = digits if len(digits) == 3 else (*digits, END_OF_ANSWER)
        assert problem.bandit.mean_reward[m].tolist() == [float(response == right) for response in responses]
