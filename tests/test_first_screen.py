"""The first screen of a log: what to do, the course, shares with limits, pass@k, two logs compared, and the command."""

import json
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tables import said

import grpo_theory as gt
from grpo_theory.checks import sentences
from grpo_theory.checks.estimates import clustered_share, fit_course
from grpo_theory.page.command import main

LOGS = Path(__file__).parent / "data" / "logs"
LINES = 25


def written(rows, folder, name="log.parquet"):
    """Write rows and return the path."""
    pd.DataFrame(rows).to_parquet(folder / name)
    return folder / name


def prompts_of(rewards, **columns):
    """Return rows of groups (B, G) of rewards."""
    rewards = np.asarray(rewards, dtype=float)
    return {"prompt_id": np.repeat(np.arange(len(rewards)), rewards.shape[1]), "reward": rewards.ravel(), **columns}


# ---- what to do


def test_a_collapse_is_told_with_its_step_and_lengthening_responses():
    """Success is 0.7 until step 44 and 0 from step 53; responses are 60 tokens longer at each step from 45."""
    reading = gt.checks.read_log(LOGS / "F20_verl_collapse")
    fall, longer = reading.fallen, reading.longer
    assert fall.since.low <= 44 <= fall.since.high <= 50
    assert (round(fall.start, 1), round(fall.end, 1)) == (0.7, 0.1)
    assert longer.since.low <= 44 <= longer.since.high
    assert reading.advice[0].startswith("Go back to the checkpoint of step 4")
    assert "longer since step 44" in reading.advice[0]
    assert reading.to_text().count("\n") <= LINES


def test_easy_and_hard_logs_get_opposite_advice():
    easy, hard = (gt.checks.read_log(LOGS / name) for name in ("F26_easy", "F26_hard"))
    assert [one.advice[0][:9] for one in (easy, hard)] == ["Too easy:", "Too hard:"]
    assert (easy.signal["right"].value, easy.signal["wrong"].value) == (304 / 384, 0.0)
    assert (hard.signal["right"].value, hard.signal["wrong"].value) == (0.0, 310 / 384)
    assert easy.signal["wrong"].high == pytest.approx(0.0099, abs=1e-4), "Wilson: z^2/(n + z^2)"


def test_a_log_without_faults_needs_no_change_and_a_level_course_is_no_reason_to_act(tmp_path):
    rng = np.random.default_rng(0)
    level = prompts_of(rng.integers(0, 2, (240, 8)), step=np.repeat(np.arange(30), 64))
    reading = gt.checks.read_log(written(level, tmp_path))
    assert (reading.course.now.direction, reading.advice) == ("level", ["Nothing to change."])
    assert np.unique(reading.recent["step"]).tolist() == list(range(23, 30)), "the last quarter of 30 steps"


def test_truncation_and_wrong_advantages_come_with_what_to_do(tmp_path):
    rng = np.random.default_rng(1)
    rewards = rng.integers(0, 2, (20, 8)).astype(float)
    cut = (rewards.ravel() == 0) & (rng.random(160) < 0.5)
    rows = prompts_of(rewards, truncated=cut, length=np.where(rewards.ravel() == 1, 100, 300), advantage=rewards.ravel() - 0.5)
    reading = gt.checks.read_log(written(rows, tmp_path))
    share, apart = reading.truncated
    inside = [rewards[b][~one].mean() for b, one in enumerate(cut.reshape(20, 8)) if one.any() and not one.all()]
    assert (share.value, apart.value) == (cut.mean(), pytest.approx(-np.mean(inside))), "truncated responses are all wrong"
    assert ["the same baseline" in reading.advice[0], "Raise the length limit" in reading.advice[1]] == [True, True]
    assert "right less wrong in a group -200 (-200 to -200)" in reading.to_text()
    assert gt.checks.read_log(written(rows | {"truncated": rng.random(160) < 0.05}, tmp_path)).advice[1:] == []


def test_tiny_differences_and_graded_rewards():
    reading, right = (gt.checks.read_log(LOGS / "A26_tiny_differences.jsonl.gz", right=one) for one in (None, 0.5))
    assert reading.advice[0].startswith("Round the rewards")
    assert (reading.prompts is None, right.prompts is None, "rewards are graded" in reading.to_text()) == (True, False, True)


def test_truncation_is_advised_on_only_where_it_is_frequent_and_lowers_the_reward_inside_groups(tmp_path):
    """Easy prompts have no truncated responses and hard ones have half of them, so that these are lower for another reason."""
    assert gt.checks.read_log(LOGS / "F26_easy").truncated is None
    rewards, cut = np.repeat([[1.0] * 8, [1, 1, 0, 0] * 2], 20, axis=0), np.repeat([[False] * 8, [True, False] * 4], 20, axis=0)
    rewards[20, 0] = 0.0  # the truncated ones are lower in one group: that shows nothing
    for hidden, advised in ((rewards, False), (np.where(cut, 0.0, rewards), True)):
        reading = gt.checks.read_log(written(prompts_of(hidden, truncated=cut.ravel()), tmp_path))
        assert any("Raise the length limit" in one for one in reading.advice) == advised
        assert reading.truncated[1].value == (-0.5 if advised else -0.25 / 20)
    few = (np.arange(40)[:, None] < 18) & (np.arange(8) == 0)
    rare = gt.checks.read_log(written(prompts_of(np.where(few, 0.0, 1.0), truncated=few.ravel()), tmp_path))
    assert (rare.truncated[0].value, rare.truncated[1].high) == (18 / 320, -1.0)
    assert "Raise" not in str(rare.advice)


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_log_of_one_reward_tells_no_right_from_wrong(reward, tmp_path):
    reading = gt.checks.read_log(written(prompts_of(np.full((12, 4), reward)), tmp_path))
    assert reading.signal["mixed"].value == 0.0
    assert (reading.signal["right"].low, reading.signal["wrong"].low) == (0.0, 0.0)
    assert reading.advice[0].startswith("Check the reward function")
    text = said(reading.to_text())
    assert "right and wrong cannot be told apart" in text
    assert "all right" not in text
    json.loads(reading.to_json())


def test_the_end_of_a_run_is_judged_by_the_rewards_of_the_whole_log(tmp_path):
    """Rewards are 1 until step 30 and 0 in the last ten: all groups of the last quarter are wrong."""
    rewards = np.repeat([1.0, 0.0], [120, 40])[:, None] * np.ones(4)
    reading = gt.checks.read_log(written(prompts_of(rewards, step=np.repeat(np.arange(40), 16)), tmp_path))
    assert (reading.signal["right"].value, reading.signal["wrong"].value) == (0.0, 1.0)


# ---- the course


def test_a_broken_line_is_found_exactly_and_its_changes_are_those_of_the_line():
    steps = np.arange(1.0, 41.0)
    line = 0.2 + 0.02 * np.minimum(steps, 20) - 0.03 * np.maximum(steps - 30, 0)
    course = fit_course(steps, line, np.full(40, 8.0))
    assert (list(course.knots), course.now.since.value, course.now.direction) == ([20.0, 30.0], 30.0, "falling")
    assert course.now[1:3] == pytest.approx((0.6, 0.3))
    assert course.fall(0.29).difference.value == pytest.approx(-0.3)
    assert course.fall(0.31) is None, "smaller than what matters"
    shuffled = np.random.default_rng(0).permutation(40)
    other = fit_course(steps[shuffled], line[shuffled], np.full(40, 8.0))
    assert (list(other.knots), other.now[:3]) == ([20.0, 30.0], (course.now.since, *map(pytest.approx, course.now[1:3])))
    assert fit_course(steps[:7], line[:7], np.ones(7)) is None


def test_limits_of_a_change_without_knots_are_those_of_least_squares():
    """Residuals that alternate are not alike, so that no correction for likeness is made."""
    steps = np.arange(10.0)
    means = 0.1 * steps + 0.01 * (-1.0) ** steps
    fitted, half = stats.linregress(steps, means), stats.t.ppf(0.975, 8)
    expected = [9.0 * (fitted.slope + side * half * fitted.stderr) for side in (0, -1, 1)]
    assert fit_course(steps, means, np.ones(10)).now.difference == pytest.approx(expected)


# ---- shares and success


def test_limits_of_a_share_use_the_effective_sample_size():
    """Pairs of equal values count once but for n/(n - 1) and the quantiles: p (1 - p)/v with v of 25 cluster sums."""
    found, z = clustered_share(np.repeat([1.0] * 10 + [0.0] * 15, 2), np.repeat(np.arange(25), 2)), stats.norm.ppf(0.975)
    size = 24 * (z / stats.t.ppf(0.975, 24)) ** 2
    middle, half = 0.4 + z**2 / (2 * size), z * np.sqrt(0.24 / size + z**2 / (4 * size**2))
    assert found == pytest.approx((0.4, *(end / (1 + z**2 / size) for end in (middle - half, middle + half))))
    assert clustered_share(np.ones(6), np.repeat([0, 1], 3))[:2] == (1.0, pytest.approx(2 / (2 + z**2)))


def test_pass_at_k_is_the_share_of_all_choices_of_k_responses_that_hold_a_right_one(tmp_path):
    rewards = np.array([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 1]])
    reading = gt.checks.read_log(written(prompts_of(rewards), tmp_path))
    for k, found in reading.pass_at().items():
        solved = [np.mean([max(one) for one in combinations(group, k)]) for group in rewards]
        assert found.value == pytest.approx(np.mean(solved))
    assert (list(reading.pass_at()), reading.prompts["c"].tolist()) == ([1, 2, 4], [0, 1, 3, 5])
    low = reading.prompts["low"].tolist()
    assert low[::3] == [0.0, pytest.approx(0.05 ** (1 / 5))]
    at_least_three = sum(comb(5, c) * low[2] ** c * (1 - low[2]) ** (5 - c) for c in (3, 4, 5))
    assert at_least_three == pytest.approx(0.05), "Clopper and Pearson's lower limit"


# ---- two logs, columns, the command


def test_two_logs_are_paired_by_prompt_and_unpaired_where_prompts_differ(tmp_path):
    both = gt.checks.read_log(LOGS / "F21_eval_A", against=LOGS / "F21_eval_B").comparison
    assert both.difference == pytest.approx((0.0025, -0.052, 0.057), abs=5e-4)
    assert (both.prompts, both.paired) == (100, True)
    many = both.needed(0.05)
    for n, enough in ((many - 1, False), (many, True)):
        t, shift = stats.t.ppf(0.975, n - 1), 0.05 / both.deviation * np.sqrt(n)
        assert (stats.nct.sf(t, n - 1, shift) + stats.nct.cdf(-t, n - 1, shift) >= 0.8) == enough, "the power of a t test"
    first = prompts_of([[0, 0], [1, 1], [0, 0], [1, 1]])
    log, other = written(first, tmp_path), written(first | {"prompt_id": first["prompt_id"] + 4}, tmp_path, "other.parquet")
    apart = gt.checks.read_log(log, against=other)
    assert (apart.comparison.paired, apart.comparison.difference.value) == (False, 0.0)
    with pytest.raises(ValueError, match="two prompts or more"):
        gt.checks.read_log(log, against=written(prompts_of([[0, 1]]), tmp_path, "one.parquet")).to_text()


def test_a_comparison_says_which_log_is_subtracted_and_the_steps_and_prompts_that_count(tmp_path):
    """The last quarter of the steps counts: ten of 40, and two of ten, with two prompts each."""
    long, higher = np.tile([[0.0, 1.0], [0.0, 0.0]], (40, 1)), np.tile([[0.0, 1.0], [1.0, 1.0]], (10, 1))
    log = written(prompts_of(long, step=np.repeat(np.arange(1, 41), 4)), tmp_path)
    short = written(prompts_of(higher, step=np.repeat(np.arange(1, 11), 4)), tmp_path, "short.parquet")
    same = "a difference is not shown; 20 prompts, paired by prompt, of steps 31 to 40"
    for one, other, words in (
        (log, log, f"this one's +0.0000 (+0.000 to +0.000): {same}"),
        (log, short, "this one's +0.5000 ("),
        (log, short, "4 prompts, of different prompts, of steps 31 to 40 here and steps 9 to 10 there"),
        (short, log, "mean reward of the second log less this one's -0.5000 ("),
    ):
        assert words in said(gt.checks.read_log(one, against=other).to_text())
    assert gt.checks.read_log(log, against=short).to_dict()["comparison"]["steps"] == ["steps 31 to 40", "steps 9 to 10"]


def test_the_command_prints_writes_and_refuses(tmp_path, capsys):
    rng = np.random.default_rng(2)
    rows = prompts_of(rng.integers(0, 2, (16, 4)), env_name=np.repeat(["math", "code"], 32))
    log, out, table = written(rows, tmp_path), tmp_path / "out.json", tmp_path / "prompts.csv"
    assert main(["read", str(log), "--by", "env_name", "--against", str(log), "--json", str(out), "--prompts", str(table)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("WHAT TO DO\n")
    assert "\nColumns     prompt = prompt_id, environment = env_name, reward = reward\n" in text
    assert text.count("\n") <= LINES
    for name, own in pd.DataFrame(rows).groupby("env_name"):
        assert f"{name} 32 responses, rewards 0 to 1, mean {own['reward'].mean():.3g}" in said(text)
    assert "+0.0000 (+0.000 to +0.000): a difference is not shown; 16 prompts, paired by prompt, of all steps" in said(text)
    found, ids = json.loads(out.read_text()), pd.read_csv(table)
    assert (found["advice"], found["comparison"]["prompts"]) == (gt.checks.read_log(log).advice, 16)
    assert (ids["c"].sum(), ids["high"].is_monotonic_increasing) == (rows["reward"].sum(), True)
    graded = written(prompts_of(rng.random((4, 4))), tmp_path)
    assert main(["read", str(graded), "--prompts", str(table)]) == 2
    assert "--right X" in capsys.readouterr().err
    for option, given, expected in (("--right", "nan", ""), ("--right", "inf", ""), ("--difference", "-1", " above 0")):
        assert main(["read", str(log), option, given]) == 2
        assert f"{option} must be a finite number{expected}, got {given}" in capsys.readouterr().err


def test_one_row_that_is_left_out_is_one_row(tmp_path):
    log = written({"prompt_id": [0, 0, 0, 1, 1], "reward": [0.0, 1.0, None, 1.0, 0.0]}, tmp_path)
    assert "left out: 1 row without a reward" in said(gt.checks.read_log(log).to_text())
    assert "; left out: 1 row without a reward" in gt.read_rollouts(log).findings.reading[0]


@pytest.mark.parametrize(("odd", "rows", "words"), [(-1.0, [3], "1 length below 0"), (2.0**63, [0, 9], "2 lengths below 0")])
def test_lengths_that_no_response_has_are_said_and_not_averaged(odd, rows, words, tmp_path):
    lengths = np.arange(100.0, 164.0)
    lengths[rows] = odd
    log = prompts_of(np.random.default_rng(3).integers(0, 2, (16, 4)), length=lengths)
    text = said(gt.checks.read_log(written(log, tmp_path)).to_text())
    assert f"{words} or above 2,147,483,648 tokens: taken for missing." in text
    assert f"Length mean {lengths[lengths == np.arange(100.0, 164.0)].mean():.0f}" in text


def test_steps_without_lengths_are_left_out_of_their_course(tmp_path):
    steps = np.repeat(np.arange(1, 21), 8)
    rewards = np.random.default_rng(4).integers(0, 2, (40, 4))
    log = prompts_of(rewards, step=steps, length=np.where(steps % 7 == 0, np.nan, 100.0 + 10.0 * steps))
    longer = gt.checks.read_log(written(log, tmp_path)).longer
    assert (longer.start, longer.end) == (pytest.approx(110.0), pytest.approx(300.0))


def test_words_of_shares():
    assert [sentences.percent(one) for one in (0.0, 0.004, 0.04, 0.4, 0.996, 1.0)] == ["0%", "0.4%", "4%", "40%", "99.6%", "100%"]


def test_what_is_called_level_has_limits_that_hold_0():
    rng, steps, said = np.random.default_rng(0), np.arange(40.0), set()
    for slope in np.linspace(0.0, 0.008, 9):
        change = fit_course(steps, 0.6 - slope * steps + rng.normal(0.0, 0.1, 40), np.full(40, 32.0)).now
        assert (change.difference.low <= 0.0 <= change.difference.high) == (change.direction == "level")
        said.add(change.direction)
    assert said >= {"level", "level or falling", "falling"}
