"""A small study, of the simulated form, whose cells are those of a run of estimators."""

import numpy as np

from simulations.gradient.cells import gradient_cases, merge, simulated

drawn = simulated("oracle", "rloo")


def cells(quick):
    return [drawn.cell(case) for case in gradient_cases(True, (4,), batch_size=4, problems=("two-arms", "tabular"))]


def simulate(settings, rng, chunk):
    return drawn(**{name: value for name, value in settings.items() if name != "of"}, rng=rng, chunk=chunk)


def rows(settings, results):
    simulation = merge({"simulation": [one for chunk in results for one in chunk["simulation"]]})
    errors = {"estimate": float(simulation.mse[1]), "standard_error": float(simulation.mse_standard_error[1])}
    return [{"problem": settings["problem"], "prediction": np.nan, "replications": simulation.replications, **errors}]


def claims(table):
    return []
