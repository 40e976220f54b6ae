"""A small study."""

import numpy as np

from simulations.gradient.cells import gradient_cells, merge, simulate_estimators


def cells(quick):
    return gradient_cells(("oracle", "rloo"), (4,), batch_size=4, quick=True, problems=("two-arms", "tabular"))


def simulate(settings, rng, chunk):
    return simulate_estimators(settings, settings["estimators"], rng, chunk)


def rows(settings, results):
    simulation = merge(results)
    errors = {"estimate": float(simulation.mse[1]), "standard_error": float(simulation.mse_standard_error[1])}
    return [{"problem": settings["problem"], "prediction": np.nan, "replications": simulation.replications, **errors}]


def claims(table):
    return []
