"""Logs that trainers wrote, read as they are (marker `reference`: `make reference` builds the trainers' environments).

TRL trains a random one-layer model with log_completions; verl's own function writes what it is given. What is read is compared
with what TRL said of the rewards while it trained, and with what verl was given.
"""

import json
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import grpo_theory as gt

pytestmark = pytest.mark.reference

HERE = Path(__file__).parent
NEAR = 1e-6
"""TRL averages rewards in float32."""


def environment(library):
    """Return the Python of a trainer's environment; skip where there is none."""
    python = HERE.parent / f".venv-{library}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{library} has no environment here: make reference builds it")
    return python


@cache
def trl_logs():
    """Train with TRL; return the folder of its logs and what it said of them."""
    python = environment("trl")
    folder = python.parents[1] / "logs"
    subprocess.run([python, HERE / "reference" / "trl_log_side.py", folder], check=True, capture_output=True, text=True)
    return folder, json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", ["plain", "conversation", "two rewards", "two updates"])
def test_a_log_of_trl_is_read_as_it_is(name):
    folder, found = trl_logs()
    reward = "letters + 0.5 * brevity" if name == "two rewards" else None
    log = gt.read_rollouts(folder / name / "completions", reward=reward, steps="all")
    batches = len(found[name]["rewards"])
    assert batches == (2 if name == "two updates" else 4)
    assert (log.findings.files, log.findings.rows, log.findings.kept) == (4, 4 * 12, batches * 12)
    assert log.findings.sizes == {4: 3 * batches}
    repeated = {"rows of 2 steps that repeat the step before (2, 4)": 24}
    assert log.findings.left_out == (repeated if name == "two updates" else {})
    assert (log.findings.schema, log.findings.columns["reward"]) == ("trl", reward or "letters")
    group_steps = np.array([step for step, _ in log.rollouts.prompts])
    for step, mean, uniform in zip(log.findings.steps, *found[name].values(), strict=True):
        rows = log.steps == step
        assert log.rollouts.rewards[rows].mean() == pytest.approx(mean, abs=NEAR)
        assert log.rollouts.counts.uniform[group_steps == step].mean() == pytest.approx(uniform, abs=NEAR)
    last = gt.read_rollouts(folder / name / "completions", reward=reward, steps="last")
    assert last.rollouts.rewards.mean() == pytest.approx(found[name]["rewards"][-1], abs=NEAR)


def test_the_log_of_verl_is_read_as_it_is(tmp_path):
    python = environment("verl")
    given = {
        "inputs": ["How much is 1 + 1?\nThink."] * 4 + ['Say "no".'] * 4,
        "outputs": ["2", "3", "two", "2", "no", "yes\n", "no", "nö"],
        "gts": ["2"] * 4 + [["no", "nö"]] * 4,
        "scores": [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0],
        "reward_extra_infos_dict": {"acc": [True, False, False, True, True, False, True, True], "request_id": list("abcdefgh")},
    }
    source = f"""
import json
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
given = json.loads({json.dumps(json.dumps(given))})
for step in (7, 8):
    RayPPOTrainer._write_generations(**given, dump_path={str(tmp_path)!r}, global_steps=step)
    given["scores"] = given["scores"][::-1]
"""
    done = subprocess.run([python, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    log = gt.read_rollouts(tmp_path, steps="all")
    assert log.findings.columns == {"prompt": "input", "step": "step", "reward": "score"}
    assert log.rollouts.prompts.tolist() == [(step, text) for step in (7, 8) for text in dict.fromkeys(given["inputs"])]
    assert log.rollouts.rewards.tolist() == [*given["scores"], *given["scores"][::-1]]
