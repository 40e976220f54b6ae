"""The words and numbers of an advice."""

import re

import numpy as np
import pytest
from tables import rows, write

import grpo_theory as gt
from grpo_theory.page.command import main
from grpo_theory.page.section import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999.6, "1,000"),
        (-999.6, "-1,000"),
        (999.4, "999"),
        (1e-5, "0.00001"),
        (1.234e-4, "0.000123"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (2.0, "2"),
        (12.34, "12.3"),
        (1234567.8, "1,234,568"),
        (3.21e-12, "3.21e-12"),
        (1e16, "1e+16"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, text):
    assert number(value) == text


def told(path):
    """Return what is said of a table, its lines joined."""
    return " ".join(gt.page.to_text(gt.plan.advise(gt.read_rollouts(path), 64)).split())


def test_one_is_not_many(tmp_path):
    """A budget of one group of two, and one prompt with too few responses."""
    found = [row for i, row in enumerate(rows(12, 8)) if i >= 5]
    log = gt.read_rollouts(write(tmp_path / "rollouts.jsonl", found))
    said = " ".join(gt.page.to_text(gt.plan.advise(log, 2)).split())
    assert "groups of 2: 1 prompt with 2 responses (2 of" in said
    assert "1 prompt with fewer than 4 responses was left out; 11 were used" in said
    assert not re.search(r"\b1 prompts|\b1 groups|\b1 responses", said)
    with pytest.raises(ValueError, match="at most 1 prompt, fewer than min_prompts 2"):
        gt.plan.advise(log, gt.plan.Limits(budget=2, min_prompts=2))


def test_one_edge_has_one_wording(tmp_path):
    said = told(write(tmp_path / "rollouts.jsonl", [row | {"reward": float(row["reward"] > 0)} for row in rows(24, 8)]))
    assert "succeed at most 20% of the time" in said
    assert "(success at most 20%, " in said
    assert "below 20%" not in said


def test_more_than_two_rewards_need_no_column_of_success(capsys, tmp_path):
    rng = np.random.default_rng(5)
    found = [row | {"reward": float(rng.choice([0.0, 0.5, 1.0]))} for row in rows(24, 8)]
    path = write(tmp_path / "graded.jsonl", found)
    assert main(["plan", str(path), "--budget", "64", "--rewards-only", "--group-size", "8"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The table has 3 different rewards" in said
    assert "prompts whose mean reward is in the lowest fifth of the range" in said
    assert "cannot be given" not in said
