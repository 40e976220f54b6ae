"""Logs as trainers and their users write them: each is read as its schema says, and the reader says how.

What is expected of those in tests/data/logs was computed from the schemas by others, and not by this package.
"""

from pathlib import Path

import numpy as np
import own_logs
import pandas as pd
import pytest
from tables import read, said, write

import grpo_theory as gt
from grpo_theory.page.command import main
from grpo_theory.samples.reward_counts import levels

LOGS = Path(__file__).parent / "data" / "logs"

# ---- logs as trainers write them: groups of all steps, steps, the size of all groups, mean reward, groups of equal rewards

GIVEN = {
    "A01_scores_are_rubric_marks.jsonl.gz": (12, 1, 6, 0.7222, 7, "scores is not taken for sketches"),
    "A02_tinker": (16, 2, 8, 0.5078, 5, "group_idx begins anew in each iteration"),
    "A03_open_instruct": (18, 3, 8, 3.9583, 1, "Prompts are told apart by prompt_tokens"),
    "A03_open_instruct_folder": (18, 3, 8, 3.9583, 1, "run_metadata.jsonl (no rows with a prompt and a reward)"),
    "A04_prompt_idx_against_text.jsonl.gz": (18, 3, 8, 0.4167, 1, "prompt_idx stands for different prompts"),
    "A05_prime_rl_flat": (30, 3, 8, 0.4958, 8, "eval_rollouts.jsonl (evaluation)"),
    "A07_trl_images": (16, 1, 8, 0.4688, 4, "advantages contradict 8 groups by prompt"),
    "A08_dynamic_sampling.jsonl.gz": (40, 1, 4, 0.5, 0, "Groups of equal rewards were left out before logging"),
    "A09_uid_is_the_group.jsonl": (8, 1, 8, 0.5781, 1, "uid is shared by several rows"),
    "A10_row_a_turn.jsonl.gz": (10, 1, 8, 0.5375, 0, "228 rows in 1 file, which hold 80 responses"),
    "A13_verifiers": (6, 1, 8, 0.5208, 0, "metadata.json (no rows with a prompt and a reward)"),
    "A15_prime_rl_traces": (6, 1, 8, 0.7625, 1, "effective/traces.jsonl.gz (a part of the rows beside it)"),
    "A16_swift": (12, 2, 8, 0.5417, 0, "reward = Accuracy"),
    "A18_openr1": (12, 1, 4, 0.4792, 1, "reward = correctness_math_verify"),
    "A20_n_correct_of_k.jsonl": (12, 1, 8, 0.5104, 0, "reward = n_correct of k"),
    "A21_pass_rate.jsonl": (12, 1, 8, 0.4688, 0, "reward = pass_rate times n"),
    "A22_wandb.table.json": (6, 1, 8, 0.5, 0, "reward = accuracy"),
    "A23_nemo_rl": (6, 1, 8, 0.6042, 0, "prompt = content.0"),
    "A25_rl2": (6, 1, 8, 0.625, 0, "prompt = prompt"),
    "A26_tiny_differences.jsonl.gz": (20, 1, 8, None, 0, "In 16 of 20 groups rewards differ by 0.001 at most"),
    "A30_trl_log_extra": (6, 1, 8, 0.5, 0, "not read: n_tool_calls"),
    "A31_easy_prompts.jsonl.gz": (100, 1, 64, 0.9113, 70, ""),
}


WITH_ADVANTAGES = ("A03_open", "A07", "A16", "A22", "A23", "A30")
"""The logs that have advantages, in columns, lists and documents."""


def as_expected(path, expected):
    """Read a log, and compare what was found; a check reads the same responses."""
    groups, steps, size, mean, equal, words = expected
    log = read(path, steps="all")
    found = log.findings
    assert (found.groups, max(len(found.steps), 1), dict(found.sizes), found.uniform) == (groups, steps, {size: groups}, equal)
    assert mean is None or log.rollouts.rewards.mean() == pytest.approx(mean, abs=5e-5)
    assert words in str(found)
    checked = gt.checks.check_log(path).log
    assert checked.rollouts.rewards.size == log.rollouts.rewards.size
    has = path.name.startswith(WITH_ADVANTAGES)
    assert (checked.advantages is not None) == has
    assert not has or checked.advantages.size == log.rollouts.rewards.size
    return log


@pytest.mark.parametrize("name", GIVEN)
def test_a_log_of_another_trainer_is_read_as_its_schema_says(name):
    as_expected(LOGS / name, GIVEN[name])


@pytest.mark.parametrize("name", own_logs.LOGS)
def test_logs_of_our_own_making_give_back_the_groups_that_they_were_made_of(name, tmp_path):
    """The same rewards in many nestings: sizes, steps, and every group's number of successes."""
    found = own_logs.rewards()
    path = own_logs.LOGS[name](tmp_path, found)
    steps = 1 if name in ("rows by key", "turns under the name of steps") else own_logs.STEPS
    groups, means = own_logs.STEPS * own_logs.PROMPTS, found.mean(axis=2).ravel()
    equal = int((np.ptp(found, axis=2) == 0.0).sum())
    log = as_expected(path, (groups, steps, own_logs.SIZE, found.mean(), equal, ""))
    assert sorted(log.rollouts.counts.means.tolist()) == sorted(means.tolist()) != sorted(np.roll(found, 1).mean(axis=2).ravel())
    assert gt.read_rollouts(path).findings.groups == groups, "prompts of different steps are different ones"


def test_rewards_that_differ_by_little_are_equal_where_a_tolerance_says_so():
    path = LOGS / "A26_tiny_differences.jsonl.gz"
    log = read(path, reward_tolerance=0.001)
    assert (len(log.findings.rewards), log.findings.uniform) == (2, 16)
    assert gt.read_rollouts(path, reward_tolerance=1e-6).findings.uniform == 0
    values = np.array([0.0, 0.0004, 0.001, 0.5, 0.9995, 1.0])
    assert levels(values, 0.001) == pytest.approx([0.0014 / 3] * 3 + [0.5] + [0.99975] * 2)
    assert np.unique(levels(values, 0.0005)).size == 4


# ---- which column is the reward


def several(folder, row):
    """Write a log of 12 prompts with 8 responses, whose rows are made from the prompt, the place, accuracy and format."""
    rng = np.random.default_rng(3)
    at = [(q, i, float(rng.random() < 0.4), float(rng.random() < 0.7)) for q in range(12) for i in range(8)]
    return write(folder / "log.jsonl", [row(*one) for one in at])


TAKEN = {
    "a total that is the sum": (
        lambda q, i, a, m: {"prompt_id": q, "rm": {"accuracy": a, "format": m}, "total": a + 0.2 * m},
        {}, "total", "in the first rows it is rm.accuracy + 0.2 * rm.format",
    ),
    "a total that counts tokens": (
        lambda q, i, a, m: {"prompt_id": q, "accuracy": a, "format": m, "kl": 0.1, "total": 100 + q * i},
        {}, "accuracy", "accuracy is taken for the reward, and format, total may be rewards too",
    ),
    "several without a total": (
        lambda q, i, a, m: {"prompt_id": q, "rm": {"accuracy": a, "format": m}},
        {}, "rm.accuracy", "--reward rm.accuracy=1 --reward rm.format=0.5 adds two up with weights",
    ),
    "one that is named": (
        lambda q, i, a, m: {"prompt_id": q, "rm": {"accuracy": a, "format": m}, "total": a + 0.2 * m},
        {"reward": "rm.format"}, "rm.format", None,
    ),
    "one": (lambda q, i, a, m: {"prompt_id": q, "reward": a, "kl": 0.1, "length": i}, {}, "reward", None),
    "accuracy beside entropy": (lambda q, i, a, m: {"prompt_id": q, "accuracy": a, "entropy": m}, {}, "accuracy", None),
    "reward beside score": (lambda q, i, a, m: {"prompt_id": q, "reward": a, "score": m}, {}, "reward", None),
    "an id of responses": (
        lambda q, i, a, m: {"qid": f"{q}-{i}", "question": f"q{q}", "reward": a},
        {}, "reward", "qid is another in each row, so it is no id of prompts: question is taken.",
    ),
}  # fmt: skip
"""Rows, options, the column that must be taken for the reward, and the words of the remark; None for no remark."""


@pytest.mark.parametrize("name", TAKEN)
def test_the_reward_that_is_taken_is_said(name, tmp_path):
    row, options, column, words = TAKEN[name]
    found = read(several(tmp_path, row), **options).findings
    assert (found.columns["reward"], found.sizes) == (column, {8: 12})
    assert found.remarks == () if words is None else words in found.remarks[0]


def test_rewards_are_added_up_as_in_trl(tmp_path):
    frame = pd.DataFrame(
        {
            "step": 1,
            "prompt": ["a", "a", "b", "b"],
            "completion": list("wxyz"),
            "right": [1.0, 0.0, None, 1.0],
            "format": [0.5, 0.5, 1.0, None],
            "note": "text",
            "advantage": 0.0,
        }
    )
    path = tmp_path / "completions_00001.parquet"
    frame.to_parquet(path)
    with pytest.raises(ValueError, match=r"reward must name a column: right, format may be reward functions of TRL"):
        gt.read_rollouts(path)
    assert read(path, reward=["right", "format"]).rollouts.rewards.tolist() == [1.5, 0.5, 1.0, 1.0]
    assert read(path, reward={"right": 2.0, "format": -1.0}).rollouts.rewards.tolist() == [1.5, -0.5, -1.0, 2.0]
    frame.drop(columns="format").fillna(0.0).to_parquet(path)
    assert gt.read_rollouts(path).findings.columns["reward"] == "right"


def test_plan_and_check_take_the_same_options_and_say_the_same_of_the_log(tmp_path, capsys):
    path = several(tmp_path, lambda q, i, a, m: {"q": q, "rm": {"a": a, "f": m}, "advantage": a + 0.5 * m, "split": f"s{q % 2}"})
    named = ["--prompt", "q", "--reward", "rm.a=1", "--reward", "rm.f=0.5", "--where", "split=s1"]
    for command, counted in (
        (["plan", str(path), "--budget", "64"], "48 rows not asked for"),
        (["check", str(path)], "48 responses"),
    ):
        assert main([*command, *named]) == 0
        words = said(capsys.readouterr().out)
        assert "reward = rm.a + 0.5 * rm.f" in words
        assert counted in words
