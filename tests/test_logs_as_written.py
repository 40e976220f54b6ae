"""Logs as trainers and their users write them, of made-up numbers: each is read as its schema says, and the reader says how.

What is expected of those in tests/data/logs was computed from the schemas by others, and not by this package.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import own_logs
import pytest

import grpo_theory as gt

LOGS = Path(__file__).parent / "data" / "logs"


class Expected(NamedTuple):
    """Groups of all steps, steps, the size of all groups, the mean reward, and groups whose rewards are all equal."""

    name: str
    groups: int
    steps: int
    size: int
    mean: float | None
    equal: int | None
    said: str = ""


GIVEN = (
    Expected("A01_scores_are_rubric_marks.jsonl.gz", 12, 1, 6, 0.7222, 7, "scores is not taken for sketches"),
    Expected("A02_tinker", 16, 2, 8, 0.5078, 5, "group_idx begins anew in each iteration"),
    Expected("A03_open_instruct", 18, 3, 8, 3.9583, 1, "Prompts are told apart by prompt_tokens"),
    Expected("A03_open_instruct_folder", 18, 3, 8, 3.9583, 1, "run_metadata.jsonl (no rows with a prompt and a reward)"),
    Expected("A04_prompt_idx_against_text.jsonl.gz", 18, 3, 8, 0.4167, 1, "prompt_idx stands for different prompts"),
    Expected("A05_prime_rl_flat", 30, 3, 8, 0.4958, 8, "eval_rollouts.jsonl (evaluation)"),
    Expected("A07_trl_images", 16, 1, 8, 0.4688, 4, "advantages contradict 8 groups by prompt"),
    Expected("A08_dynamic_sampling.jsonl.gz", 40, 1, 4, 0.5, 0, "Groups of equal rewards were left out before logging"),
    Expected("A09_uid_is_the_group.jsonl", 8, 1, 8, 0.5781, 1, "uid is shared by several rows"),
    Expected("A10_row_a_turn.jsonl.gz", 10, 1, 8, 0.5375, 0, "228 rows in 1 file, which hold 80 responses"),
    Expected("A13_verifiers", 6, 1, 8, 0.5208, 0, "metadata.json (no rows with a prompt and a reward)"),
    Expected("A15_prime_rl_traces", 6, 1, 8, 0.7625, 1, "effective/traces.jsonl.gz (a part of the rows beside it)"),
    Expected("A16_swift", 12, 2, 8, 0.5417, 0, "reward = Accuracy"),
    Expected("A18_openr1", 12, 1, 4, 0.4792, 1, "reward = correctness_math_verify"),
    Expected("A20_n_correct_of_k.jsonl", 12, 1, 8, 0.5104, 0, "reward = n_correct of k"),
    Expected("A21_pass_rate.jsonl", 12, 1, 8, 0.4688, 0, "reward = pass_rate times n"),
    Expected("A22_wandb.table.json", 6, 1, 8, 0.5, 0, "reward = accuracy"),
    Expected("A23_nemo_rl", 6, 1, 8, 0.6042, 0, "prompt = content.0"),
    Expected("A25_rl2", 6, 1, 8, 0.625, 0, "prompt = prompt"),
    Expected("A26_tiny_differences.jsonl.gz", 20, 1, 8, None, 0, "In 16 of 20 groups rewards differ by 0.001 at most"),
    Expected("A30_trl_log_extra", 6, 1, 8, 0.5, 0, "not read: n_tool_calls"),
    Expected("A31_easy_prompts.jsonl.gz", 100, 1, 64, 0.9113, 70),
)


def check(expected, path, **options):
    """Read a log in both ways and compare what was found."""
    log = gt.read_rollouts(path, steps="all", **options)
    found = log.findings
    print(found)
    steps = max(len(found.steps), 1)
    assert (found.groups, steps, dict(found.sizes)) == (expected.groups, expected.steps, {expected.size: expected.groups})
    if expected.mean is not None:
        assert log.rollouts.rewards.mean() == pytest.approx(expected.mean, abs=5e-5)
        assert found.uniform == expected.equal
    assert expected.said in str(found)
    counts, also = gt.read_reward_counts(path, steps="all", **options)
    assert np.array_equal(counts.counts.toarray(), log.rollouts.counts.counts.toarray())
    assert also.steps == found.steps
    return log


@pytest.mark.parametrize("expected", GIVEN, ids=[one.name for one in GIVEN])
def test_a_log_of_another_trainer_is_read_as_its_schema_says(expected):
    check(expected, LOGS / expected.name)


def test_rewards_that_differ_by_little_are_equal_where_a_tolerance_says_so():
    path = LOGS / "A26_tiny_differences.jsonl.gz"
    log = gt.read_rollouts(path, reward_tolerance=0.001)
    assert len(log.findings.rewards) == 2
    assert log.findings.uniform == 16
    counts, _ = gt.read_reward_counts(path, reward_tolerance=0.001)
    assert np.array_equal(counts.counts.toarray(), log.rollouts.counts.counts.toarray())
    assert gt.read_rollouts(path, reward_tolerance=1e-6).findings.uniform == 0


@pytest.mark.parametrize("name", own_logs.LOGS)
def test_logs_of_our_own_making_give_back_the_groups_that_they_were_made_of(name, tmp_path):
    """The same rewards in twenty nestings: sizes, steps, and every group's number of successes."""
    found = own_logs.rewards()
    path = own_logs.LOGS[name](tmp_path, found)
    steps = 1 if name in ("rows_by_key", "turns_under_the_name_of_steps") else own_logs.STEPS
    groups, equal = own_logs.STEPS * own_logs.PROMPTS, int((np.ptp(found, axis=2) == 0.0).sum())
    log = check(Expected(name, groups, steps, own_logs.SIZE, float(found.mean()), equal), path)
    assert sorted(log.rollouts.counts.means.tolist()) == sorted(found.mean(axis=2).ravel().tolist())
    assert gt.read_rollouts(path).findings.groups == groups, "prompts of different steps are different ones"


def test_the_expectation_can_fail(tmp_path):
    """The negative control: one reward of another prompt's."""
    found = own_logs.rewards()
    path = own_logs.LOGS["messages"](tmp_path, np.roll(found, 1))
    log = gt.read_rollouts(path, steps="all")
    assert sorted(log.rollouts.counts.means.tolist()) != sorted(found.mean(axis=2).ravel().tolist())
