"""U7, U8, U10, U18: the mean gap during training and its bounds.

The mean suboptimality gap of training runs is compared with the bounds, with the exact recursion, and with the rates.  Broken:
a bound without noise, a learner that descends, steps that are a quarter too long, and a constant step where it should fall.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.evidence import Claim, Evidence, Margin, Statement
from grpo_theory.evidence.reading import evidence, exact, farthest
from grpo_theory.harness.study import EXACT, Cell, Rows, Settings
from simulations.kernels import kernel_at
from simulations.maximum import curvatures, maximum
from simulations.sources import DEMYSTIFYING, OURS, derived
from simulations.training.gap_laws import RADIUS, moments, predict, schedule, start_of
from simulations.training.grid import doubling
from simulations.training.lemma_6 import U8
from simulations.training.pooled import mean_and_covariance, slope_of, sums_of

NEAR = Margin(0.1, "A tenth of the gap is half of what steps that are a quarter too long add, which a reader would notice.")
NEAR_RATE = Margin(0.1, "A tenth of the exponent: far from the rate of runs that stay away from the maximiser.")
U7 = Statement(
    "U7",
    f"{DEMYSTIFYING}, Lemma 6(a)",
    "E Delta_n <= (1 - 2 mu beta + L mu beta^2)^n E Delta_0 + L beta^2 M/(4 mu beta - 2 L mu beta^2), every n",
    "upper bound",
    "J is L-smooth and PL with constant mu; beta < 1/(2L)",
    formula=r"If $J$ is $L$-smooth with Polyak-Lojasiewicz constant $\mu$ and $\beta<1/(2L)$, then for every $n$ "
    r"$$E\Delta_n\le\left(1-2\mu\beta+L\mu\beta^2\right)^nE\Delta_0+\frac{L\beta^2M}{4\mu\beta-2L\mu\beta^2}$$",
)
U7_SHARP = Statement(
    "U7/sharp",
    derived(7),
    "E Delta_n = trace(diag(lambda) C_n)/2, C_n by the exact linear recursion, constant steps",
    "equality",
    formula=r"Near the maximiser, with constant steps, $E\Delta_n=\tfrac12\mathrm{tr}(\mathrm{diag}(\lambda)\,C_n)$ with "
    "$C_n$ by the exact linear recursion.",
    margin=NEAR,
    whose=OURS,
)
U8_SHARP = Statement(
    "U8/sharp",
    derived(7),
    "E Delta_n = trace(diag(lambda) C_n)/2, C_n by the exact linear recursion, harmonic steps",
    "equality",
    formula=r"Near the maximiser, with harmonic steps, $E\Delta_n=\tfrac12\mathrm{tr}(\mathrm{diag}(\lambda)\,C_n)$ with "
    "$C_n$ by the exact linear recursion.",
    margin=NEAR,
    whose=OURS,
)
U10 = Statement(
    "U10",
    f"{DEMYSTIFYING}, Theorem 8",
    "d(theta_n, Theta*) -> 0: E Delta_n falls as 1/n",
    "rate",
    "steps beta/i, Theta compact",
    formula=r"With steps $\beta/i$ and a compact $\Theta$, $$d(\theta_n,\Theta^*)\to0,$$ and $E\Delta_n$ falls as $1/n$.",
    margin=NEAR_RATE,
)
U10_DISTANCE = Statement(
    "U10/distance",
    f"{DEMYSTIFYING}, Theorem 8",
    "d(theta_n, Theta*) -> 0 in probability: E d(theta_n, Theta*)^2 falls as 1/n",
    "rate",
    "steps beta/i, Theta compact",
    formula=r"$E\,d(\theta_n,\Theta^*)^2$ falls as $1/n$, so $d(\theta_n,\Theta^*)\to0$ in probability.",
    margin=NEAR_RATE,
)
U18 = Statement(
    "U18",
    f"{DEMYSTIFYING}, Lemma 16",
    "mu <= every positive eigenvalue of -H",
    "upper bound",
    formula=r"At a maximiser, for every positive eigenvalue $\lambda$ of $-H$, $$\mu\le\lambda,\qquad\mu\le L$$",
)
U18_ORDER = Statement("U18/order", f"{DEMYSTIFYING}, Lemma 16", "mu <= L", "upper bound", formula=r"$\mu\le L$.")

PROBLEMS = ("kl-tabular", "kl-linear", "conflict")
ESTIMATORS = ("rloo", "oracle", "reinforce")
SCHEDULES = ("constant", "harmonic")
STEPS = 4096
RUNS, QUICK_RUNS, CHUNK_RUNS = {"kl-tabular": 6144, "kl-linear": 8192, "conflict": 6144}, 256, 2048
TURNED, TURNED_RUNS = kernel_at("turned_mean", 1.0, "rloo, turned round"), 64
"""The learner of U8's control descends: a sign that is wrong."""
LONGER = 1.25
"""The learner of the sharp predictions' control takes steps that are a quarter too long."""
LATE = {"constant": 2, "harmonic": 16}
"""The rates are read from this fraction of the steps on: runs at a constant step, the controls, forget their start late."""
RATES = {"slope": U10, "slope of the distance": U10_DISTANCE}


def cells(quick: bool) -> list[Cell]:
    """Training runs from the edge of a ball around the maximiser, projected onto it."""
    common = {"batch_size": 1, "group_size": 4, "runs": QUICK_RUNS if quick else CHUNK_RUNS}
    chunks = {problem: 1 if quick else runs // CHUNK_RUNS for problem, runs in RUNS.items()}
    return [
        Cell({"problem": problem, "estimator": estimator, "schedule": schedule, "steps": STEPS, **common}, chunks[problem])
        for problem in (PROBLEMS[::2] if quick else PROBLEMS)
        for schedule in SCHEDULES
        for estimator in (ESTIMATORS[:1] if quick else ESTIMATORS)
    ]


def late_step(settings: Settings) -> int:
    """Return the step from which on the rates are read."""
    return int(settings["steps"]) // LATE[settings["schedule"]]


def train(
    settings: Settings,
    seed: np.random.SeedSequence,
    steps: int,
    estimator: gt.Estimator | None = None,
    factor: float = 1.0,
) -> gt.TrainingRuns:
    """Train for so many steps, fewer being the first of more, to the bit; a few runs with another estimator if one is given.

    The steps of the schedule are multiplied by the factor.
    """
    problem, best, _ = maximum(settings["problem"])
    return gt.simulate_training(
        problem,
        start_of(settings["problem"]),
        settings["estimator"] if estimator is None else estimator,
        schedule(settings, factor),
        batch_size=settings["batch_size"],
        group_size=settings["group_size"],
        steps=steps,
        replications=settings["runs"] if estimator is None else TURNED_RUNS,
        rng=seed,
        workers=1,
        checkpoints=doubling(steps),
        ball=gt.Ball(best, RADIUS),
    )


def simulate(settings: Settings, rng: np.random.SeedSequence, chunk: int) -> dict[str, Any]:
    """Train, and keep moments of the gaps at the checkpoints and of d(theta, Theta*)^2 at a late step and at the end.

    The first chunk predicts the gaps too, and trains the learner whose steps are too long and, with steps that fall, the one that
    descends.
    """
    _, best, highest = maximum(settings["problem"])
    training = train(settings, rng, settings["steps"])
    ends = train(settings, rng, late_step(settings)), training
    directions = curvatures(settings["problem"])[1]
    distances = np.stack([np.sum(((end.theta - best) @ directions) ** 2, axis=1) for end in ends], axis=1)
    kept = {
        "gaps": sums_of(highest - training.objectives),
        "distances": sums_of(distances),
        "diverged": int(training.diverged.sum()),
    }
    if chunk > 0:
        return kept
    kept["prediction"] = predict(settings)
    kept["longer"] = sums_of(highest - train(settings, rng, settings["steps"], factor=LONGER).objectives)
    if settings["schedule"] == "harmonic":
        kept["turned"] = sums_of(highest - train(settings, rng, settings["steps"], TURNED).objectives)
    return kept


def _spread(results: list[Any], name: str, runs: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (C,) and its standard error (C,) of what the first chunk kept moments of; NaN if it kept none."""
    if name not in results[0]:
        return np.full(n, np.nan), np.full(n, np.nan)
    mean, covariance = mean_and_covariance(results[:1], name, runs)
    return mean, np.sqrt(np.maximum(np.diag(covariance), 0.0))


def rows(settings: Settings, results: list[Any]) -> Rows:
    """One row for each checkpoint, one for the rate of the last ones, and the laws on a fine grid."""
    n, predicted = np.array(doubling(settings["steps"])), results[0]["prediction"]
    laws = pd.DataFrame(predicted["gaps"], index=moments(settings["steps"]))
    runs = settings["runs"] * len(results)
    mean, covariance = mean_and_covariance(results, "gaps", runs)
    common = {name: settings[name] for name in ("problem", "estimator", "schedule", "batch_size", "group_size")}
    common |= {"replications": runs, "diverged": sum(result["diverged"] for result in results), **predicted["constants"]}
    columns = pd.DataFrame({"n": n, "estimate": mean, "standard_error": np.sqrt(np.diag(covariance))})
    columns = columns.join(laws.loc[n].reset_index(drop=True))
    columns["looseness"] = columns["bound"] / mean
    columns["longer"], columns["longer_error"] = _spread(results, "longer", settings["runs"], len(n))
    columns["turned"], columns["turned_error"] = _spread(results, "turned", TURNED_RUNS, len(n))
    gaps = [common | {"quantity": "gap", "longer_runs": settings["runs"]} | row for row in columns.to_dict("records")]
    late, times = n >= late_step(settings), n + common["offset"]
    ends = times[late][[0, -1]]
    slopes = {
        "slope": slope_of(times[late], mean[late], covariance[np.ix_(late, late)]),
        "slope of the distance": slope_of(ends, *mean_and_covariance(results, "distances", runs)),
    }
    rates = [common | {"quantity": name, "n": int(n[-1]), "prediction": -1.0} | slope for name, slope in slopes.items()]
    curve = [
        common | {"quantity": "law", "n": moment, "estimate": law["prediction"]} | law | EXACT
        for moment, law in zip(laws.index, laws.to_dict("records"), strict=True)
    ]
    return [*gaps, *rates, *curve]


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Read the bounds, the sharp prediction and the rates off the table."""
    for (problem, kind, estimator), part in table.groupby(["problem", "schedule", "estimator"], sort=False):
        gaps = part[part["quantity"] == "gap"]
        yield from _gap_claims(f"{problem} ({estimator})", kind == "constant", gaps)
    for (problem, estimator), part in table[table["quantity"].isin(RATES)].groupby(["problem", "estimator"], sort=False):
        at = part.set_index(["quantity", "schedule"])
        for name, statement in RATES.items():
            # The control is a run at a constant step, which stays away from the maximiser.
            own, control = (evidence(at.loc[(name, kind)], -1.0) for kind in SCHEDULES[::-1])
            yield statement.claim(f"{problem} ({estimator})", own, control)
    for problem, part in table.groupby("problem", sort=False):
        yield from _curvature_claims(str(problem), part.iloc[0])


def _gap_claims(setting: str, is_constant: bool, gaps: pd.DataFrame) -> Iterator[Claim]:
    """Yield the bound at the checkpoint where it comes nearest to failing, and the sharp prediction at the end.

    The control of a constant step forgets the noise, M = 0; that of beta/n is a learner whose sign is wrong.  The latter bound
    is at least 15 times the gap, so no check of it could tell that its M is too small by less; for that there is `tight_bound`.
    """
    row, last = gaps.iloc[0], gaps.iloc[-1]
    own = _nearest(gaps, "estimate", "standard_error", "bound", int(row["replications"]))
    facts = {"L": row["L"], "mu": row["mu"], "M": row["M"], "steepest ray": row["ray"], "first step": row["step"]}
    if is_constant:
        control = _nearest(gaps, "estimate", "standard_error", "control", int(row["replications"]))
    else:
        control = _nearest(gaps, "turned", "turned_error", "bound", TURNED_RUNS)
        facts["gap of the control / gap"] = float(last["turned"] / last["estimate"])
    yield (U7 if is_constant else U8).claim(setting, own, control, facts=facts)
    broken = {"estimate": last["longer"], "standard_error": last["longer_error"], "replications": last["longer_runs"]}
    own, control = (evidence(one) for one in (last.to_dict(), last.to_dict() | broken))
    facts = {"gap of the control / gap": float(last["longer"] / last["estimate"])}
    yield (U7_SHARP if is_constant else U8_SHARP).claim(setting, own, control, facts=facts)


def _nearest(gaps: pd.DataFrame, estimate: str, error: str, bound: str, replications: int) -> Evidence:
    """Return the evidence of the checkpoint where a gap comes nearest to its bound, the level shared among all."""
    ratios, errors = gaps[estimate] / gaps[bound], gaps[error] / gaps[bound]
    at = farthest(ratios + 5.0 * errors)
    runs = replications if errors[at] > 0.0 else 0
    return Evidence(float(ratios[at]), 1.0, float(errors[at]), replications=runs, comparisons=len(gaps))


def _curvature_claims(problem: str, row: Mapping[Any, Any]) -> Iterator[Claim]:
    """Yield U18 on the constants over the ball; the control puts L for mu."""
    least, most, mu = float(row["least_curvature"]), float(row["L"]), float(row["mu"])
    facts = {"L": most, "mu": mu, "least curvature": least}
    yield U18.claim(problem, exact(mu, least), exact(most, least), facts=facts)
    yield U18_ORDER.claim(problem, exact(mu, most), exact(most, mu), facts=facts)
