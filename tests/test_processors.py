"""The simulators on this processor, which may pick numbers from its registers, and on one of which nothing is known."""

import json
import os
import subprocess
import sys

import pytest

import grpo_theory as gt

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


def simulate_all():
    """Simulate gradients and training, and return what comes out to the last bit."""
    found, sizes = {}, {"batch_size": 3, "group_size": 5, "rng": 1, "workers": 1}
    for name in ("kl-tabular", "linear", "two-arms"):
        problem = gt.gallery.problem(name)
        run = gt.simulate_gradients(problem, problem.theta, ["grpo", "oracle", "rloo"], **sizes, replications=500)
        trained = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.3), **sizes, steps=30, replications=70)
        found[name] = [number.hex() for number in (*run.means.ravel().tolist(), *trained.theta.ravel().tolist())]
    return found


@pytest.mark.skipif(bool(os.environ.get("NUMBA_CPU_NAME")), reason="a processor has been asked for")
def test_every_processor_makes_the_same_bits():
    """The other one compares, or looks numbers up in memory."""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "PYTHONPATH": os.pathsep.join(["tests", *sys.path])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == simulate_all()
