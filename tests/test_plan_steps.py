"""Tables in which prompts come at several training steps: the planner counts prompts, and not their groups."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables import answer, rows, write

import grpo_theory as gt
from grpo_theory.page.command import main
from grpo_theory.plan import effective_sample_size

TABLES, PROMPTS, STEPS, RESPONSES = 200, 12, 20, 8


@pytest.fixture(scope="module")
def repeated(tmp_path_factory):
    """Tables of 12 prompts at 20 steps, with a success rate a prompt that is drawn once, from a beta law of mean 1/2."""
    rng = np.random.default_rng(20261122)
    folder = tmp_path_factory.mktemp("repeated")
    step, prompt, _ = (part.ravel() for part in np.indices((STEPS, PROMPTS, RESPONSES)))
    paths = [folder / f"{k}.parquet" for k in range(TABLES)]
    for path in paths:
        reward = (rng.random(step.size) < rng.beta(0.5, 0.5, PROMPTS)[prompt]).astype(float)
        pq.write_table(pa.table({"step": step, "prompt_id": prompt, "reward": reward}), path)
    return paths


def share_that_hold(paths, **steps):
    """Return how often the 95% limits of the mean reward hold 1/2."""
    found = [effective_sample_size(gt.read_reward_counts(path, **steps)[0]).mean_reward for path in paths]
    return np.mean([one.low <= 0.5 <= one.high for one in found])


def test_limits_hold_where_prompts_come_at_several_steps(repeated):
    """Of 200 tables 95% are 190, with a standard deviation of 3; the control counts every group as a prompt."""
    assert share_that_hold(repeated) >= 0.9
    assert share_that_hold(repeated, steps="all") < 0.6


def test_the_planner_counts_prompts_and_not_groups(capsys, tmp_path):
    """With scores and from rewards alone; a log that was read with all its groups is refused."""
    found = [row | {"step": step} for step in (1, 2, 3) for row in rows(24, 8, seed=step)]
    path = write(tmp_path / "rollouts.jsonl", found)
    alone = write(tmp_path / "last.jsonl", [row for row in found if row["step"] == 3])
    for more in ((), ("--rewards-only",)):
        printed = []
        for table in (path, alone):
            assert main(["plan", str(table), "--budget", "256", *more]) == 0
            printed.append(" ".join(answer(capsys.readouterr().out).split()))
        assert "24 prompts, 192 responses" in printed[0]
        assert "48 groups left out" in printed[0]
        answers = [text[: text.index("WHAT WAS READ")] for text in printed]
        assert answers[0] == answers[1]
    every = gt.read_rollouts(path, steps="all")
    for given, told in ((every, None), (every.rollouts.counts, every.findings)):
        with pytest.raises(ValueError, match="rollouts must have one group per prompt, and these 72 groups are of 24 prompts"):
            gt.plan.advise(given, 256, findings=told)
