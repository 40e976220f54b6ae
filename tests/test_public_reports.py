"""What public reports called a bug of a trainer, and what it is: rounding, a log, or right as it is."""

import numpy as np
import pytest
from test_trainer_checks import checked, names, standard, table

import grpo_theory as gt


def left_out_in_float32(rewards):
    """Return advantages (G,) whose deviation is the root of a difference of float32 means, as NeMo-RL's to September 2026."""
    z = np.asarray(rewards, dtype=np.float32)
    others = np.float32(1.0) - np.eye(z.size, dtype=np.float32)
    count = np.float32(z.size - 1)
    mean, square = (others @ z) / count, (others @ z**2) / count
    deviation = np.sqrt(np.maximum((square - mean**2) * (count / (count - 1)), np.float32(0.0)))
    divided = (z - mean) / (deviation + np.float32(1e-6))
    return np.where(deviation > 0.0, divided, z - mean).astype(np.float64)


NEARLY_UNIFORM = [0.95] * 7 + [0.0]
"""Seven of eight responses have one reward, which float32 does not hold exactly."""


def test_a_loss_of_0_at_the_start_is_right_and_its_gradient_is_not_0(tmp_path):
    """TRL issue 2703, open-r1 issue 239, unsloth issue 2614: with all ratios 1 the loss is minus the mean advantage."""
    rng = np.random.default_rng(0)
    rewards = rng.integers(0, 2, (16, 8)).astype(float)
    rows = table(rewards, standard(rewards))
    scores = rng.normal(size=(128, 16))
    check = checked(rows, tmp_path)
    assert abs(check.loss["by_response"]) < 1e-7
    assert "A loss of 0 is correct here" in check.to_text()
    advantages = rows["advantage"].to_numpy()
    slope = 1e-6
    moved = np.exp(slope * scores @ np.ones(16))  # ratios after a small step along (1, ..., 1)
    change = (-(moved * advantages).mean() + advantages.mean()) / slope
    assert change == pytest.approx(-(advantages @ scores).sum() / 128, rel=1e-3)
    assert abs(change) > 0.01, "the loss is 0 and its derivative is not"


def test_float32_gives_the_one_failure_of_a_nearly_uniform_group_a_thousandfold_advantage(tmp_path):
    """NeMo-RL issue 1518 and pull requests 4158 and 4161: the other rewards are equal, and their deviation is rounding."""
    trainer = left_out_in_float32(NEARLY_UNIFORM)
    assert trainer[-1] == pytest.approx(-2075.39, abs=0.01)
    ours = gt.advantages([NEARLY_UNIFORM], "nemo_rl")[0]
    assert ours[-1] == pytest.approx(-0.95, abs=1e-12)
    np.testing.assert_allclose(ours[:-1], trainer[:-1], rtol=1e-5)
    rng = np.random.default_rng(4)
    rewards = np.vstack([NEARLY_UNIFORM, rng.integers(0, 2, (15, 8))])
    logged = np.array([left_out_in_float32(row) for row in rewards])
    check = checked(table(rewards, logged), tmp_path)
    assert names(check) == {"nemo_rl"}
    assert check.contradictions.counts == {"rounded deviation": 1}
