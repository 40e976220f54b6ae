"""Use an installed wheel: the library, the data that it ships, and its commands.  To be run from outside of the checkout."""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import grpo_theory as gt

assert Path(gt.__file__).is_relative_to(sys.prefix), f"this is not the installed package: {gt.__file__}"
problem = gt.gallery.problem("lm-few-shot")
law = gt.group_size_law(problem, problem.theta)
sizes = {"batch_size": 4, "group_size": 8}
run = gt.simulate_gradients(problem, problem.theta, ["rloo"], **sizes, replications=4096, rng=0)
assert abs(run.mse[0] - law.mse(**sizes)) < 4.9 * run.mse_standard_error[0]
for command in distribution("grpo-theory").entry_points:
    subprocess.run([Path(sys.executable).with_name(command.name), "--help"], check=True, stdout=subprocess.DEVNULL)
