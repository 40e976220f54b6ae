"""The error of a whole report, by drawing null reports: what the limits promise, and that other limits break it.

Every sampled row of a report is drawn again under its own null. It has its own number of replications and the
shape of its own data. A coverage is binomial, and a distance of distribution functions has Kolmogorov's law. A mean is one of
squared normals, turned round in half of the rows. This is because measured skewnesses lie between -2.4 and 5.2, most near 2.
Its standard error is estimated from the same draws, as in the studies.
"""

from collections import Counter

import numpy as np
from scipy.special import ndtri, stdtrit
from scipy.stats import kstwo

from grpo_theory.evidence import Evidence, Share

CHUNK = 1 << 24
NOMINAL = 0.95


def studentised(replications: int, reports: int, rng: np.random.Generator) -> np.ndarray:
    """Return (mean - truth)/(estimated standard error) of squared normals, shape (reports,)."""
    found = []
    for start in range(0, reports, max(1, CHUNK // replications)):
        shape = (min(CHUNK // replications, reports - start), replications)
        draws = rng.standard_normal(shape) ** 2
        found.append((draws.mean(axis=1) - 1.0) / (draws.std(axis=1, ddof=1) / np.sqrt(replications)))
    return np.concatenate(found)


def misses(kind: str, name: str, replications: int, level: float, reports: int, seed: int) -> dict[str, np.ndarray]:
    """Return in which of the reports the interval of one row misses, by rule: as it is judged, by Student, by the normal."""
    rng = np.random.default_rng(seed)
    if kind == "law":
        missed = rng.random(reports) < kstwo.sf(np.sqrt(np.log(2.0 / level) / (2.0 * replications)), replications)
        return dict.fromkeys(("as judged", "Student", "normal"), missed)
    if name.startswith("CI/"):
        counts = rng.binomial(replications, NOMINAL, reports)
        values, place = np.unique(counts, return_inverse=True)
        limits = np.array([Share(k / replications, NOMINAL, replications=replications).interval(level) for k in values])
        exact = ((limits[:, 0] > NOMINAL) | (limits[:, 1] < NOMINAL))[place]
        error = np.sqrt(NOMINAL * (1.0 - NOMINAL) / replications)
        normal = np.abs(counts / replications - NOMINAL) > -ndtri(level / 2.0) * error
        return {"as judged": exact, "Student": normal, "normal": normal}
    distances = np.abs(studentised(replications, reports, rng))
    wide = Evidence(0.0, 0.0, 1.0, replications=replications).half_width(level, replications)
    student = -float(stdtrit(replications - 1, level / 2.0))
    return {"as judged": distances > wide, "Student": distances > student, "normal": distances > -ndtri(level / 2.0)}


def family_error(rows: list[tuple[str, str, int]], reports: int, level: float) -> dict[str, float]:
    """Return the share of null reports in which any statement is refuted, by rule, each statement at a level.

    Rows of a report are sampled: statement, kind, replications.
    """
    settings, wrong = Counter(name for name, _, _ in rows), dict[str, np.ndarray]()
    for number, (name, kind, replications) in enumerate(rows):
        found = misses(kind, name, replications, level / settings[name], reports, number)
        for rule, missed in found.items():
            wrong[rule] = wrong.get(rule, np.zeros(reports, dtype=bool)) | missed
    return {rule: float(missed.mean()) for rule, missed in wrong.items()}


def test_null_reports_of_few_skewed_runs_keep_the_family_error():
    """1,000 null reports of three statements, 0.05 promised: skewed means of 128 runs, shares of 64 trials, distances of laws.

    As judged at most 5% + 3 sigma of them hold a miss; by Student's quantiles, or the normal's, more than twice as many as that.
    """
    listed = [("U9/printed", "ordering", 128)] * 24 + [("CI/tail_value", "equality", 64)] * 16
    listed += [("U11/normal", "law", 2048)] * 10
    found = family_error(listed, 1000, 0.05 / 3)
    assert found["as judged"] < 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / 1000)
    assert min(found["Student"], found["normal"]) > 2.0 * 0.07
