"""The set of longer answers: what ships, that it is what it says, and that the model can be asked again."""

import json

import numpy as np
import pytest
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.problem.gallery import END_OF_ANSWER

DATA = gt.data.long_answers()


def test_shapes_and_ranges():
    assert len(DATA.questions) == len(set(DATA.questions)) == 32
    assert DATA.hidden.shape == (32, 111, 576)
    assert DATA.head.shape == (11, 576)
    assert DATA.mass.shape == (32, 111)
    assert np.isfinite(DATA.hidden).all()
    assert np.isfinite(DATA.head).all()
    assert 0.0 <= DATA.mass.min() <= DATA.mass.max() <= 1.0 + 1e-6
    assert np.bincount(DATA.categories).tolist() == [8] * len(DATA.category_names)


def test_answers_are_right():
    assert [eval(question, {"__builtins__": {}}) for question in DATA.questions] == DATA.answers.tolist()
    assert 0 <= DATA.answers.min() <= 99 < DATA.answers.max() <= 999


def test_the_problem_is_the_models_head_over_its_hidden_states():
    """Probabilities and the one response that pays, of some answers spelt out digit by digit."""
    problem = gt.gallery.problem("lm-answers")
    responses, policy = list(problem.policy.responses), problem.policy
    assert (problem.bandit.n_prompts, len(responses), policy.n_logits, policy.dimension) == (32, 1111, 1221, 6336)
    found = policy.probabilities(problem.theta)
    prefixes = [(), *((a,) for a in range(10)), *((a, b) for a in range(10) for b in range(10))]
    for m in (0, 13, 31):
        tokens = softmax(DATA.hidden[m].astype(np.float64) @ DATA.head.astype(np.float64).T, axis=1)
        for response in [(END_OF_ANSWER,), (7, END_OF_ANSWER), (4, 2, END_OF_ANSWER), (1, 3, 8)]:
            expected = np.prod([tokens[prefixes.index(response[:t]), response[t]] for t in range(len(response))])
            assert found[m, responses.index(response)] == pytest.approx(expected, rel=1e-10)
        digits = tuple(int(digit) for digit in str(DATA.answers[m]))
        right = digits if len(digits) == 3 else (*digits, END_OF_ANSWER)
        assert problem.bandit.mean_reward[m].tolist() == [float(response == right) for response in responses]


def test_the_model_knows_the_form_and_hardly_the_sums():
    """Nearly all of the model's own mass is on the eleven tokens; right answers are several times likelier than one in 1,111."""
    problem = gt.gallery.problem("lm-answers")
    paths = problem.policy.paths
    reached = paths.collect(problem.policy.probabilities(problem.theta)).reshape(32, 111, 11).sum(axis=2)
    assert (reached * DATA.mass).sum() > 0.98 * reached.sum()
    assert gt.moments(problem, problem.theta).value.mean() > 10.0 / 1111.0


def test_it_is_loaded_once_and_says_where_it_comes_from():
    assert gt.data.long_answers() is DATA
    assert {"model", "sha256", "licence", "versions", "seed", "made_by", "tokens"} <= set(DATA.provenance)
    assert json.dumps(DATA.provenance)
