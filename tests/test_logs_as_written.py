"""Logs as trainers and their users write them: each is read as its schema says, and the reader says how.

What is expected of those in tests/data/logs was computed from the schemas by others, and not by this package. Those whose
names begin with B are of our own making: the same groups in many nestings.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tables import read, said, write

import grpo_theory as gt
from grpo_theory.page.command import main

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


OURS = {one.name: (15, 1 if one.name[:3] in ("B08", "B12") else 3, 4, 0.4833, 5, "") for one in sorted(LOGS.glob("B*"))}
SUCCESSES = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4]
"""Of the groups of all logs of our own: they were made with these."""


@pytest.mark.parametrize(("name", "expected"), (GIVEN | OURS).items())
def test_a_log_of_another_trainer_is_read_as_its_schema_says(name, expected):
    """A check reads the same responses."""
    groups, steps, size, mean, equal, words = expected
    log = read(LOGS / name, steps="all")
    found = log.findings
    assert (found.groups, max(len(found.steps), 1), dict(found.sizes), found.uniform) == (groups, steps, {size: groups}, equal)
    assert mean is None or log.rollouts.rewards.mean() == pytest.approx(mean, abs=5e-5)
    assert words in str(found)
    checked, responses = gt.checks.check_log(LOGS / name).log, log.rollouts.rewards.size
    assert checked.rollouts.rewards.size == responses
    has = name.startswith(WITH_ADVANTAGES)
    assert (None if checked.advantages is None else checked.advantages.size) == (responses if has else None)
    if name in OURS:
        assert sorted(log.rollouts.counts.successes) == SUCCESSES
        assert gt.read_rollouts(LOGS / name).findings.groups == 15, "prompts of different steps are different ones"


def test_rewards_that_differ_by_little_are_equal_where_a_tolerance_says_so():
    path = LOGS / "A26_tiny_differences.jsonl.gz"
    log = read(path, reward_tolerance=0.001)
    assert (len(log.findings.rewards), log.findings.uniform) == (2, 16)
    assert gt.read_rollouts(path, reward_tolerance=1e-6).findings.uniform == 0


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
    right, form = [1.0, 0.0, None, 1.0], [0.5, 0.5, 1.0, None]
    columns = {"step": 1, "prompt": list("aabb"), "completion": list("wxyz"), "right": right, "format": form, "advantage": 0.0}
    frame = pd.DataFrame(columns)
    path = tmp_path / "completions_00001.parquet"
    frame.to_parquet(path)
    with pytest.raises(ValueError, match=r"reward must name a column: right, format may be reward functions of TRL"):
        gt.read_rollouts(path)
    assert read(path, reward=["right", "format"]).rollouts.rewards.tolist() == [1.5, 0.5, 1.0, 1.0]
    assert read(path, reward={"right": 2.0, "format": -1.0}).rollouts.rewards.tolist() == [1.5, -0.5, -1.0, 2.0]


def test_plan_and_check_take_the_same_options_and_say_the_same_of_the_log(tmp_path, capsys):
    path = several(tmp_path, lambda q, i, a, m: {"q": q, "rm": {"a": a, "f": m}, "advantage": a + 0.5 * m, "split": f"s{q % 2}"})
    named = ["--prompt", "q", "--reward", "rm.a=1", "--reward", "rm.f=0.5", "--where", "split=s1"]
    for command, counted in (
        (["plan", str(path), "--budget", "64"], "48 rows not asked for"),
        (["check", str(path)], "48 responses"),
    ):
        assert main([*command, *named]) == 0
        words = said(capsys.readouterr().out)
        assert ("reward = rm.a + 0.5 * rm.f" in words, counted in words) == (True, True)
