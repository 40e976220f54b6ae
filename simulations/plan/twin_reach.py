"""How far a twin looks ahead: success that it predicts from a log, beside that of the runs themselves, policy by policy.

Each log is of another draw of the policy; only the walk is one problem. Twins are made of logs at the start and of logs after 32
updates. Each trains as the real policy does, at the same learning rate. Logs at the start are judged; there are few of the
others. In the control the log's sketches are 1.4 times as long, so the learning rate is twice what it should be.
"""

from collections import defaultdict

import numpy as np

import grpo_theory as gt
from grpo_theory.evidence.reading import mean_of, summary
from grpo_theory.harness import check, rows, run
from grpo_theory.plan import half_twins
from simulations.plan import run_worlds
from simulations.runs.arms import quietly, success_rates
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated

MISS = 0.03
"""Points of success that nobody would act on: two evaluations on 500 questions differ by as much."""
STATEMENTS = {8: stated("twin/near"), 32: stated("twin/far")}
"""By the number of updates ahead."""

RATES = {"network of 8": 8.0, "network of 32": 4.0, "linear": 16.0, "walk": 0.4}
"""With these success about doubles in the first 16 to 32 updates."""
ESTIMATOR, SIZES = "rloo", (32, 8)
LOOKS = (1, 2, 4, 8, 16, 32)
FEW, FULL = 16, 64
"""Logged responses a prompt."""
LOGS = ((0, FULL, 96), (32, FULL, 24), (0, FEW, 24))
"""Updates after which logs are taken, their responses a prompt, and their number.  96 draws cost as much as 128 logs of one."""
QUICK_LOGS = 4
RUNS, HALVES = 8, 8
"""Halves are tried on this many of the larger logs: half of a small one may have no prompt whose rewards differ."""
LENGTHENED = 2.0**0.5
SHOWN = ("real", "twin", "halves, own", "halves, other")


def cases(quick):
    """Each problem, start and size of the logs."""
    chosen = [(name, *one) for name in RATES for one in LOGS[:2]] + [(name, *LOGS[2]) for name in RATES]
    keys = ("problem", "start", "size", "logs")
    return [dict(zip(keys, (*one, QUICK_LOGS if quick else logs), strict=True)) for *one, logs in chosen]


def judged(quick):
    """Large logs at the start, and how far ahead."""
    return [one | {"ahead": ahead} for one in cases(quick) if one["size"] == FULL and one["start"] == 0 for ahead in STATEMENTS]


def ahead_of(case, start, rate, runs, seed):
    """Train from a start (d,), and return the mean success of runs at the looks, and their last parameters."""
    success, ends = run_worlds.courses(case, np.tile(start, (runs, 1)), ESTIMATOR, rate, SIZES, LOOKS, seed)
    return success.mean(axis=0), ends


@run()
def twins(problem, start, size, logs, rng):
    """Take a log of each draw of a policy, and train on from there: the policy itself, and the twins of the log."""
    quietly()
    rate, by_arm = RATES[problem], defaultdict(list)
    for draw in range(logs):
        case, seed = run_worlds.problem(problem, draw), child_seed(seed_of(rng), draw)
        theta = ahead_of(case, case.theta, rate, 1, child_seed(seed, 0))[1][0] if start else case.theta
        by_arm["real"].append(ahead_of(case, theta, rate, RUNS, child_seed(seed, 1))[0])
        generator, prompts = np.random.default_rng(child_seed(seed, 2)), np.arange(case.policy.n_prompts)
        log = run_worlds.draw_log(run_worlds.sampler(case, theta), prompts, size, generator)
        made = {"twin": gt.twin(log)}
        if size == FULL and start == 0:
            made["control"] = gt.twin(log.with_scores(LENGTHENED * log.known_scores))
        for arm, one in made.items():
            by_arm[arm].append(ahead_of(one, one.theta, rate, RUNS, child_seed(seed, 3))[0])
        if size == FULL and draw < HALVES:
            first, other = half_twins(log)
            own, ends = ahead_of(first, first.theta, rate, RUNS, child_seed(seed, 3))
            by_arm["halves, own"].append(own[-1:])
            by_arm["halves, other"].append(success_rates(other, ends).mean(keepdims=True).ravel())
    return by_arm


@check(*STATEMENTS.values(), of=twins, cases=judged, broken={"arm": "control"}, setting="{problem}")
def reach(found, ahead, arm="twin"):
    """The mean miss of twins of large logs, each policy by itself: a mean over policies would hide those that it misses."""
    missed = np.abs(found[arm] - found["real"])[:, LOOKS.index(ahead)]
    return {STATEMENTS[ahead].id: (mean_of(missed), MISS)}


@rows(of=twins, cases=cases)
def success(found):
    """Success by arm and look, and how far predictions miss it on average over the logs."""
    for arm, values in ((arm, found[arm]) for arm in SHOWN if arm in found):
        real = found["real"][: len(values), -values.shape[1] :]
        for c, ahead in enumerate(LOOKS[-values.shape[1] :]):
            at = {"arm": arm, "ahead": ahead, "prediction": real[:, c].mean()}
            yield at | {"quantity": "success"} | summary(values[:, c])
            if arm != "real":
                yield at | {"quantity": "miss", "prediction": MISS} | summary(np.abs(values[:, c] - real[:, c]))
