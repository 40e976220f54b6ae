"""The set of longer answers: what ships, that it is what it says, and that the model can be asked again."""

import numpy as np
import pytest
from scipy.special import softmax

import grpo_theory as gt
from grpo_theory.problem.gallery import END_OF_ANSWER

DATA = gt.data.long_answers()


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
