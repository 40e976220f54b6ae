"""Tables of studies that are made of checks, on all of their cases or on some."""

import numpy as np

from grpo_theory.harness.study import Check, cell_seed, joined, plain, study_of, table_of


def table(module, quick=True, **wanted):
    """Return the rows of all checks on their cases with the settings that are wanted."""
    study, found, computed = study_of(module), [], {}

    def given(one, variant):
        if one.of is None:
            return {"rng": np.random.default_rng(1)}
        cell = one.of.cell(variant)
        if cell.key not in computed:
            rngs = (np.random.default_rng(cell_seed(study.name, cell, 0)) for _ in range(cell.chunks))
            computed[cell.key] = joined([study.compute(cell.settings, rng, chunk) for chunk, rng in enumerate(rngs)])
        return {"found": computed[cell.key]}

    for one in (one for one in vars(module).values() if isinstance(one, Check)):
        for case in one.listed(quick):
            if all(name not in case or case[name] in values for name, values in wanted.items()):
                found += plain(one.rows(case, lambda variant, one=one: given(one, variant)))
    return table_of(found)


def computed(study, quick, generator):
    """Return the table of a study; ``generator(number, cell, chunk)`` is what a chunk of its cells is handed."""
    results = [
        (cell.settings, [study.compute(cell.settings, generator(number, cell, i), i) for i in range(cell.chunks)])
        for number, cell in enumerate(study.cells(quick))
    ]
    return table_of(study.table(results, quick))


def claims(module, *asked, **wanted):
    """Return the claims that such a table makes."""
    return study_of(module).claims(table(module, *asked, **wanted))
