"""How far a twin looks ahead: success that it predicts from a log, beside that of the runs themselves, policy by policy.

Each log is of another draw of the policy; only the walk is one problem. Twins are made of logs at the start and of logs after 32
updates. Each trains as the real policy does, at the same learning rate. Logs at the start are judged; there are few of the
others. In the control the log's sketches are 1.4 times as long, so the learning rate is twice what it should be.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import grpo_theory as gt
from grpo_theory.arrays import Array
from grpo_theory.evidence import Claim, Evidence
from grpo_theory.harness.study import Cell, Rows, Settings
from grpo_theory.harness.summary import summary
from grpo_theory.plan import half_twins
from simulations.plan.run_worlds import courses, draw_log, problem, sampler
from simulations.runs.arms import quietly, success_rates
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

NEAR, FAR = 8, 32
MISS = 0.03
"""Points of success that nobody would act on: two evaluations on 500 questions differ by as much."""
STATEMENTS = {ahead: stated(f"twin/{name}") for name, ahead in (("near", NEAR), ("far", FAR))}

RATES = {"network of 8": 8.0, "network of 32": 4.0, "linear": 16.0, "walk": 0.4}
"""With these success about doubles in the first 16 to 32 updates."""
NAMES = tuple(RATES)
ESTIMATOR, BATCH, GROUP = "rloo", 32, 8
LOOKS = (1, 2, 4, NEAR, 16, FAR)
STARTS = (0, FAR)
"""Updates after which a log is taken."""
FEW, FULL = 16, 64
"""Logged responses a prompt."""
LOGS, LATER_LOGS, FEW_LOGS, QUICK_LOGS = 96, 24, 24, 4
"""Of 64 responses a prompt at the start and later, and of 16.  Logs of 96 draws cost as much as 128 logs of one draw."""
RUNS, HALVES = 8, 8
"""Halves are tried on this many of the larger logs: half of a small one may have no prompt whose rewards differ."""
LENGTHENED = 2.0**0.5
ARMS = ("twin", "control", "halves, own", "halves, other")


def cells(quick: bool) -> list[Cell]:
    """One cell for each problem, start and size of the logs."""
    logs = [(start, FULL, LATER_LOGS if start else LOGS) for start in STARTS]
    chosen = [(name, *one) for name in NAMES for one in logs] + [(name, 0, FEW, FEW_LOGS) for name in NAMES]
    return [
        Cell({"problem": name, "start": start, "size": size, "logs": QUICK_LOGS if quick else count})
        for name, start, size, count in chosen
    ]


def trained(case: gt.Problem, start: Array, rate: float, runs: int, seed: np.random.SeedSequence) -> tuple[Array, Array]:
    """Train from a start (d,), and return the success of runs at the looks, (runs, 6), and the last parameters."""
    return courses(case, np.tile(start, (runs, 1)), ESTIMATOR, rate, (BATCH, GROUP), LOOKS, seed)


def simulate(settings: Settings, rng: np.random.Generator, chunk: int) -> dict[str, list[Any]]:
    """Take a log of each draw of a policy, and train on from there: the policy itself, and the twins of the log."""
    quietly()
    rate, by_arm = RATES[settings["problem"]], defaultdict(list)
    parts = ["twin"] + ["control"] * (settings["size"] == FULL and settings["start"] == 0)
    for draw in range(settings["logs"]):
        case, seed = problem(settings["problem"], draw), child_seed(seed_of(rng), draw)
        start = trained(case, case.theta, rate, 1, child_seed(seed, 0))[1][0] if settings["start"] else case.theta
        by_arm["real"].append(trained(case, start, rate, RUNS, child_seed(seed, 1))[0].mean(axis=0).tolist())
        generator, prompts = np.random.default_rng(child_seed(seed, 2)), np.arange(case.policy.n_prompts)
        log = draw_log(sampler(case, start), prompts, settings["size"], generator)
        halves = ["halves"] * (settings["size"] == FULL and draw < HALVES)
        for arm, predicted in predictions(log, rate, child_seed(seed, 3), parts + halves):
            by_arm[arm].append(predicted.tolist())
    return by_arm


def predictions(
    log: gt.RaggedRollouts, rate: float, seed: np.random.SeedSequence, parts: Sequence[str]
) -> Iterator[tuple[str, Array]]:
    """Yield the success that is predicted from a log at the looks, by arm; of the halves only the last."""
    yield "twin", _ahead(gt.twin(log), rate, seed)[0]
    if "control" in parts:
        yield "control", _ahead(gt.twin(log.with_scores(LENGTHENED * log.known_scores)), rate, seed)[0]
    if "halves" in parts:
        first, other = half_twins(log)
        own, ends = _ahead(first, rate, seed)
        yield "halves, own", own[-1:]
        yield "halves, other", success_rates(other, ends).mean(keepdims=True).ravel()


def _ahead(made: gt.Problem, rate: float, seed: np.random.SeedSequence) -> tuple[Array, Array]:
    """Return the mean success of a twin's runs at the looks, and where they end."""
    success, ends = trained(made, made.theta, rate, RUNS, seed)
    return success.mean(axis=0), ends


def rows(settings: Settings, results: list[Any]) -> Rows:
    """Success by arm and look, and how far predictions miss it on average over the logs."""
    (found,) = results
    real = np.array(found["real"])
    table: Rows = []
    for arm in ("real", *(name for name in ARMS if name in found)):
        values = np.array(found[arm])
        looks = LOOKS[-values.shape[1] :]
        own = real[: len(values), -values.shape[1] :]
        for c, ahead in enumerate(looks):
            at = dict(settings) | {"arm": arm, "ahead": ahead, "prediction": float(own[:, c].mean())}
            table.append(at | {"quantity": "success"} | summary(values[:, c]))
            if arm != "real":
                table.append(at | {"quantity": "miss", "prediction": MISS} | summary(np.abs(values[:, c] - own[:, c])))
    return table


def claims(table: pd.DataFrame) -> Iterator[Claim]:
    """Judge the misses of twins of large logs, each policy by itself: a mean over policies would hide those that it misses."""
    missed = table[(table["quantity"] == "miss") & (table["size"] == FULL) & (table["start"] == 0)]
    for name, part in missed.groupby("problem", sort=False):
        for ahead, statement in STATEMENTS.items():
            at = part[part["ahead"] == ahead].set_index("arm")
            own, control = (_evidence(at.loc[arm]) for arm in ARMS[:2])
            yield statement.claim(name, own, control)


def _evidence(row: pd.Series) -> Evidence:
    return Evidence(row["estimate"], MISS, row["standard_error"], replications=int(row["replications"]))
