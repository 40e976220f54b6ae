"""The callback of gt.live in runs of TRL's own trainer (marker `reference`: `make reference` builds its environment).

A random one-layer model is trained. The callback's log is compared with what the trainer logs of the same groups, and with the
same run without the callback.
"""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.reference

HERE = Path(__file__).parent
ALLOWED = 0.05
NEAR = 1e-6
"""TRL averages in float32."""


@cache
def runs():
    """Train in TRL's environment, with this checkout on the path; skip where it cannot be had."""
    python = HERE.parent / ".venv-trl" / "bin" / "python"
    if not python.exists():
        pytest.skip("trl has no environment here: make reference builds it")
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "NUMBA_CACHE_DIR": str(python.parents[1] / "numba")}
    probe = subprocess.run([python, "-c", "import trl, numba"], env=environment, capture_output=True, text=True)
    if probe.returncode:
        pytest.skip("the environment of trl lacks what the package needs: remove .venv-trl, and make reference builds it anew")
    folder = python.parents[1] / "live"
    folder.mkdir(exist_ok=True)
    side = [python, HERE / "reference" / "trl_live_side.py", folder]
    done = subprocess.run(side, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "found.json").read_text())


def logged(run):
    """Return the rows of a run's history that have a reading."""
    return [row for row in run["history"] if any(name.startswith("live/") for name in row)]


def test_training_is_what_it_is_without_the_callback():
    found = runs()
    assert found["rewards alone"]["weights"] == found["none"]["weights"]
    assert found["sketches"]["weights"] == found["none"]["weights"]
    assert found["none"]["weights"] != found["batch"]["weights"], "equal weights would say nothing"


def test_the_overhead_is_at_most_five_per_cent():
    found = runs()
    assert max(found["overheads"]) <= ALLOWED
    assert found["rewards alone"]["overhead"] <= ALLOWED
    assert "live/sketched_prompts" in logged(found["sketches"])[-1], "nothing was sketched that could have taken time"


def test_the_share_with_signal_is_what_the_trainer_says():
    """Where a reading has the groups of five steps, and the trainer logs their average."""
    found = runs()["rloo"]
    for row in logged(found):
        assert row["live/groups_with_signal"] == pytest.approx(1.0 - row["frac_reward_zero_std"], abs=NEAR)
    assert len(logged(found)) == 12


def test_sketches_are_of_the_responses_whose_rewards_are_read():
    """The trainer shuffles a batch after it is scored; what is read stands in the order of the groups."""
    for name in ("sketches", "rloo"):
        agree = runs()[name]["rows agree"]
        assert len(agree) >= 2
        assert all(in_place for in_place, _ in agree)
        assert not all(moved for _, moved in agree), "rewards in any order would agree"


def test_estimators_and_their_advice():
    found = runs()
    assert found["rloo"]["estimator"] == "trl_rloo"
    assert found["sketches"]["estimator"] == "trl_grpo"
    last = logged(found["rloo"])[-1]
    assert 0.0 < last["live/efficiency"] <= 1.0
    assert 2 <= last["live/best_group_size_low"] <= last["live/best_group_size"] <= last["live/best_group_size_high"]
    assert any("no sketches are taken" in line for line in found["batch"]["lines"])
    assert all(found[name]["errors"] == 0 for name in ("rewards alone", "sketches", "rloo", "batch"))


def test_an_error_is_logged_once_and_the_run_ends_as_it_should():
    found = runs()["broken"]
    assert (found["steps"], found["errors"] > 1, len(found["lines"])) == (20, True, 1)
    assert "no gradient today" in found["lines"][0]
    assert not logged(found)
