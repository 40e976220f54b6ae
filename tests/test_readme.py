"""The README's Python runs as printed, and its kernel is what it says."""

import re
from pathlib import Path

import pytest

import grpo_theory as gt

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_every_block_runs(registry, tmp_path):
    names = {}
    for number, block in enumerate(BLOCKS):
        path = tmp_path / f"block_{number}.py"
        path.write_text(block)
        exec(compile(block, path, "exec"), names)
    assert len(BLOCKS) == 5
    assert names["law"].mean() > 0.0
    assert 0.5 < names["tried"].coverage < 0.7
    assert not names["tried"].consistent()
    sizes = {"batch_size": 2, "group_size": 4}
    problem = gt.gallery.problem("tabular")
    where = (problem.bandit, problem.policy, problem.theta)
    run = gt.simulate_gradients(*where, "shrunk", **sizes, replications=20_000, rng=0)
    assert abs(run.mse[0] - gt.gradient_mse(*where, "shrunk", **sizes)) < 4.9 * run.mse_standard_error[0]


@pytest.mark.parametrize("mark", ["@gt.estimator", "gt.coverage"])
def test_what_is_said_to_take_ten_lines_does(mark):
    shown = next(block for block in BLOCKS if mark in block)
    assert len([line for line in shown.splitlines() if line.strip()]) <= 10
