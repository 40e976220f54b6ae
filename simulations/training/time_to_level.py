"""T14, T8: updates to a level of the objective on two fixed problems, each composition at its best step size of those tried.

Training runs of an arm are compared with those of its rivals, draw by draw; limits count runs and the choice of the step. The
steps tried are five, around the best that a pilot on other draws finds. A first run had nine for all arms, with fewer runs at
each, and its limits were wide. A second had three, whose ends were often the best. The five were introduced after that was seen.
In the control every second sign of TIC-GRPO's is wrong.
"""

from itertools import product

import numpy as np

from grpo_theory.evidence.reading import summary
from grpo_theory.harness import check, rows, run
from simulations.best_rate import lead
from simulations.seeds import child_seed, seed_of
from simulations.statements import stated
from simulations.training.contests import ARMS, CONTESTS, behind, contested, times_of, updates_to_level
from simulations.training.worlds import race_problem, step_grid

LEVELS = {"sequence-shared": 0.68, "stopping": 0.745}
"""Two thirds of the way from the start to where noise-free ascent is after 1,024 steps of 16."""
INNER_STEPS = (4, 8)
BATCH_SIZE, GROUP_SIZE, ROLLOUTS = 16, 8, 16
STEPS = tuple(2.0**power for power in range(2, 11))
"""The pilot's, the same for all arms.  TIC-GRPO divides by the horizon, 3 or 8: so much shorter are its steps along J."""
PILOT_RUNS, RUNS, QUICK_RUNS = 32, {"stopping": 640, "sequence-shared": 320}, 128
"""At each step; all runs that are not the pilot's choose between five steps, and all judge."""
NEIGHBOURS = 2
"""How many steps of the pilot's grid are tried on either side of its best."""
T14 = stated("T14")


def cases(quick):
    """Problems and numbers of updates a rollout; quick has one."""
    sizes = {"batch_size": BATCH_SIZE, "group_size": GROUP_SIZE}
    where = [("stopping", INNER_STEPS[0])] if quick else product(LEVELS, INNER_STEPS)
    return [
        {"problem": name, "inner_steps": inner, "level": LEVELS[name], "updates": ROLLOUTS * inner}
        | {"runs": QUICK_RUNS if quick else RUNS[name], **sizes}
        for name, inner in where
    ]


def asked(updates, **case):
    """Return the settings of the runs, a chunk for each arm."""
    about = {"rollouts": updates // case["inner_steps"], "optimiser": "SGD", "arms": list(ARMS)}
    return case | about | {"pilot_steps": list(STEPS), "pilot_runs": PILOT_RUNS}, len(ARMS)


@run(dealt=asked, shared=True)
def trained(rng, chunk, **settings):
    """Train an arm at the steps around a pilot's best, on draws that all arms share; keep the objective after every rollout."""
    arm, wide, inner = settings["arms"][chunk], settings["pilot_steps"], settings["inner_steps"]
    updates = inner * np.arange(settings["rollouts"] + 1)

    def reaching(steps, runs, part):
        """Return the objective after each rollout, (steps, runs, rollouts + 1), and the updates to the level, (steps, runs)."""
        grid = step_grid({**settings, "steps": steps}, race_problem(settings["problem"]), ARMS[arm])
        objectives = grid.objectives(runs, child_seed(seed_of(rng), part), updates.tolist())
        return objectives, np.array([updates_to_level(along, updates, settings["level"]) for along in objectives])

    _, tried = reaching(wide, settings["pilot_runs"], 1)
    best = int(tried.mean(axis=1).argmin())
    steps = wide[max(best - NEIGHBOURS, 0) : best + NEIGHBOURS + 1]
    objectives, times = reaching(steps, settings["runs"], 2)
    pilot = [{"quantity": "pilot", "step": step} | summary(at) for step, at in zip(wide, tried, strict=True)]
    along = zip(updates.tolist(), objectives[times.mean(axis=1).argmin()].T, strict=True)
    curve = pilot + [{"quantity": "objective", "update": update} | summary(at) for update, at in along]
    return {"arms": [{"arm": arm, "steps": steps, "times": times, "rows": curve}]}


@check(*stated(*CONTESTS), of=trained, cases=cases, broken={"instead": "broken"}, setting="{problem} (m = {inner_steps})")
def sooner(found, instead=""):
    """Differences of times, the worst of an arm's rivals; broken: the broken TIC-GRPO in the arm's place."""
    return contested(CONTESTS, found["arms"], instead)


@rows(of=trained, cases=cases)
def courses(found):
    """Times at the best step and at each of the pilot's, mean objectives along the way, and differences from one arm."""
    times = times_of(found["arms"])
    for one in found["arms"]:
        arm, own = {"arm": one["arm"]}, times[one["arm"]]
        yield from (arm | row for row in one["rows"])
        yield arm | {"quantity": "time", "step": one["steps"][own.mean(axis=1).argmin()]} | lead([-own], (-1.0,))
        yield arm | {"quantity": "ablation", "rival": "neither"} | behind(own, times["neither"])
