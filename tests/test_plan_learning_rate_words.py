"""What is said of the learning rate is so: its range needs gradients that do not point backwards."""

import numpy as np
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.plan.expected_step import learning_rate_factor
from grpo_theory.theory import finite_group_objective


def factor(backwards):
    """Return what keeps the step, from groups of 8 to 3, of two prompts with gradients 1 and minus a number."""
    steps = []
    for size in (8, 3):
        hard, even = finite_group_objective("trl_grpo", size).slope(np.array([0.05, 0.5]))
        steps.append(hard - backwards * even)
    return steps[0] / steps[1]


def test_the_range_holds_along_gradients_that_do_not_point_backwards_and_the_words_say_so(tmp_path):
    log = gt.read_rollouts(write(tmp_path / "rollouts.jsonl", rows()))
    found = learning_rate_factor(log.rollouts.counts, ("trl_grpo", 8), ("trl_grpo", 3))
    assert f"{found.least:.3g} {found.most:.3g}" == "1.5 2.14"
    for alike in (0.0, -0.5, -5.0):
        assert found.least <= factor(alike) <= found.most
    assert factor(0.5) == pytest.approx(2.50, abs=0.005), "a prompt backwards: outside the range"
    advice = gt.plan.advise(log, gt.plan.Limits(budget=1023, max_group_size=8), group_size=8, estimator="trl_grpo")
    text = " ".join(gt.page.to_text(advice).split("\n\n")[1].split())
    assert "Along any direction in which no prompt's gradient points backwards" in text
    assert "whatever the prompts' gradients" not in text
    assert "length of the" not in text
