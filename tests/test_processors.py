"""The simulators on this processor, which may pick numbers from its registers, and on one of which nothing is known."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import grpo_theory as gt
from grpo_theory.simulate.draw import prompt_tables
from grpo_theory.simulate.update import ascent

GRADIENTS = (
    ("bandit of 3", 5),
    ("bandit of 7", 3),
    ("bandit of 7", 20),
    ("bandit of 18", 4),
    ("bandit of 7", 40),
    ("bandit of 18", 300),
)
TRAINED = ("kl-tabular", "linear", "two-arms", "wide")

PROGRAM = """
import json
from test_processors import simulate_all
print(json.dumps(simulate_all()))
"""


def bandit(n_prompts):
    rng = np.random.default_rng(n_prompts)
    features = rng.normal(size=(n_prompts, 3, 4))
    return gt.Problem(gt.Bandit(rng.uniform(0.1, 0.9, (n_prompts, 3))), gt.LinearSoftmax(features), theta=rng.normal(size=4))


def wide():
    """Return a linear problem with many dimensions, whose logits cost least where those of all prompts are found."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(12, 3, 60)) / 8.0
    return gt.Problem(gt.Bandit(rng.uniform(0.1, 0.9, (12, 3))), gt.LinearSoftmax(features), theta=rng.normal(size=60))


def simulate_all():
    """Simulate gradients and training, and return what comes out to the last bit."""
    found = {}
    for name, group_size in GRADIENTS:
        problem = bandit(int(name.split()[-1]))
        sizes = {"batch_size": 3, "group_size": group_size, "replications": 500}
        for estimators in (["grpo", "oracle"], ["grpo", "rloo"]):  # an oracle's table is too long to be picked from
            run = gt.simulate_gradients(problem, problem.theta, estimators, **sizes, rng=1, workers=1)
            found[f"{name}, {group_size}, {estimators[1]}"] = [mean.hex() for mean in run.means.ravel().tolist()]
    for name in TRAINED:
        problem = wide() if name == "wide" else gt.gallery.problem(name)
        sizes = {"batch_size": 4, "group_size": 4, "steps": 30, "replications": 70}
        run = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.3), **sizes, rng=1, workers=1)
        found[name] = [number.hex() for number in run.theta.ravel().tolist()]
    return found


@pytest.mark.skipif(bool(os.environ.get("NUMBA_CPU_NAME")), reason="a processor has been asked for")
def test_every_processor_makes_the_same_bits():
    """The other one compares, or looks numbers up in memory."""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "PYTHONPATH": os.pathsep.join(["tests", *sys.path])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    other, own = json.loads(done.stdout), simulate_all()
    assert own.keys() == other.keys()
    for name, numbers in own.items():
        assert numbers == other[name], name
    assert len(own) == 2 * len(GRADIENTS) + len(TRAINED)


def test_tables_are_read_by_rows_or_by_columns_to_the_same_bits(monkeypatch):
    """As if no table were short enough to pick from, or to choose among."""
    own = simulate_all()
    for module in (ascent, prompt_tables):
        monkeypatch.setattr(module, "PICKED", 0)
    monkeypatch.setattr(prompt_tables, "FEW", 0)
    assert not prompt_tables.lookup(np.ones((1, 2))).columns.size
    assert simulate_all() == own
