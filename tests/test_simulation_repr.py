"""What a simulation's results look like at the prompt: a line, whatever they hold."""

import re

import grpo_theory as gt

SIZES = {"batch_size": 2, "group_size": 2, "replications": 100, "rng": 1}


def test_results_of_simulations_are_a_line():
    problem = gt.gallery.problem("linear")
    runs = gt.simulate_training(problem, problem.theta, "rloo", gt.Constant(0.1), **SIZES, steps=8, checkpoints=[4, 8])
    assert re.fullmatch(r"TrainingRuns\(rloo, runs=100, diverged=0, updates=8, mean objective=0\.\d+\)", repr(runs))
    assert f"{runs.objectives[:, 1].mean():.4g})" in repr(runs)
    found = gt.simulate_gradients(problem, problem.theta, ["rloo", "grpo"], **SIZES)
    rloo, grpo = found.mse
    assert repr(found) == f"GradientSimulation(replications=100, mse={{rloo: {rloo:.4g}, grpo: {grpo:.4g}}})"
