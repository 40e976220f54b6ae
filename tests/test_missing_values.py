"""Logs with rows that have no advantage or no number for a reward: the others are judged, and what lacks is told."""

import numpy as np
import pytest
from tables import write

from grpo_theory.checks import check_log
from grpo_theory.page.command import main

MISSING = 5


def rows_of(rng, of="reward"):
    """Rows of 12 prompts with 4 responses, two numbers each; advantages are those of one of them, less the group's mean."""
    found = [
        {"prompt_id": b, "reward": float(rng.random() < 0.5), "other": float(rng.random())} for b in range(12) for _ in range(4)
    ]
    values = np.array([row[of] for row in found]).reshape(12, 4)
    advantages = (values - values.mean(axis=1, keepdims=True)).ravel().tolist()
    return [row | {"advantage": advantage} for row, advantage in zip(found, advantages, strict=True)]


def without(rows, *places):
    """Rows of which some have no advantage."""
    return [row | {"advantage": None} if place in places else row for place, row in enumerate(rows)]


@pytest.mark.parametrize("missing", [(), (MISSING,)])
def test_advantages_of_another_reward_are_told_though_one_is_missing(missing, tmp_path, capsys):
    rng = np.random.default_rng(1)
    table = write(tmp_path / "other.jsonl", without(rows_of(rng, "other"), *missing))
    assert main(["plan", str(table), "--budget", "64"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The logged advantages contradict 12 of 12 groups" in said
    assert "The trainer's reward may be another column or a sum of several (--reward names it, and may be given" in said
    assert ("1 row without an advantage does not count here." in said) is bool(missing)


def test_advantages_that_agree_are_not_contradicted_where_one_is_missing(tmp_path, capsys):
    table = write(tmp_path / "own.jsonl", without(rows_of(np.random.default_rng(2)), MISSING))
    assert main(["plan", str(table), "--budget", "64"]) == 0
    assert "contradict" not in capsys.readouterr().out


def test_the_check_leaves_out_groups_with_gaps_and_counts_them(tmp_path, capsys):
    rows = rows_of(np.random.default_rng(3))
    whole = check_log(write(tmp_path / "whole.jsonl", rows))
    table = write(tmp_path / "gaps.jsonl", without(rows, MISSING, MISSING + 1, 40))
    found = check_log(table)
    assert found.contradictions.judged == whole.contradictions.judged - 2 == 10
    assert (found.fits[0].candidate.label, found.fits[0].share) == (whole.fits[0].candidate.label, 1.0)
    assert found.log.advantages.size == 40 == found.log.rollouts.rewards.size
    assert main(["check", str(table)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 rows without a number in advantage: the check leaves out 2 groups with them." in said


def test_a_wrong_advantage_beside_a_gap_is_still_found(tmp_path):
    rows = without(rows_of(np.random.default_rng(4)), MISSING)
    changed = [row | {"advantage": 9.0} if place == 20 else row for place, row in enumerate(rows)]
    assert check_log(write(tmp_path / "gaps.jsonl", rows)).contradictions.total == 0
    assert check_log(write(tmp_path / "wrong.jsonl", changed)).contradictions.total == 1


def test_a_log_whose_groups_all_have_gaps_says_so(tmp_path, capsys):
    table = write(tmp_path / "gaps.jsonl", without(rows_of(np.random.default_rng(5)), *range(0, 48, 4)))
    assert main(["check", str(table)]) == 2
    assert "in every row of a group at least; advantage='' reads none" in capsys.readouterr().err.replace(
        "--advantage", "advantage"
    )


def test_rows_that_are_scored_as_zero_and_have_no_advantage_are_left_out_with_their_group(tmp_path):
    rows = rows_of(np.random.default_rng(6))
    rows[MISSING] |= {"reward": None, "advantage": None}
    found = check_log(write(tmp_path / "unscored.jsonl", rows), rows={"unscored": "zero"})
    assert found.contradictions.judged == 11
    assert found.contradictions.total == 0


@pytest.mark.parametrize(("command", "options"), [("plan", ("--budget", "64")), ("check", ())])
def test_rewards_that_are_words_are_answered_with_what_to_write(command, options, tmp_path, capsys):
    words = [{"prompt_id": row // 4, "reward": "right" if row % 3 else "wrong"} for row in range(24)]
    table = write(tmp_path / "words.jsonl", words)
    assert main([command, str(table), *options]) == 2
    assert "row 1 ('wrong'), row 2 ('right')" in (said := capsys.readouterr().err)
    assert "Name another column with --reward, such as one that you write beside it, with 1 where the text means success" in said
    assert "unscored" not in said, "leaving every row out is no way to read them"
    assert main([command, str(table), *options, "--unscored", "leave"]) == 2
    said = capsys.readouterr().err
    assert "the log has no row left" in said
    assert "Name the column of the rewards with --reward" in said
    one = [row | {"reward": "1.0"} if place == 2 else row for place, row in enumerate(words)]
    assert main([command, str(write(tmp_path / "one.jsonl", one)), *options]) == 2
    assert "--unscored leave" in capsys.readouterr().err


def test_a_log_of_nulls_alone_says_that_no_row_is_left(tmp_path, capsys):
    table = write(tmp_path / "nulls.jsonl", [{"prompt_id": row // 4, "reward": None} for row in range(12)])
    for command in (["plan", str(table), "--budget", "64"], ["check", str(table)]):
        assert main([*command, "--reward", "reward", "--unscored", "leave"]) == 2
        assert "the log has no row left" in capsys.readouterr().err
