"""The studies of the group size: the control variate, and verdicts that follow the evidence."""

import numpy as np
import pandas as pd
import pytest

import grpo_theory as gt
from grpo_theory.evidence import judge
from grpo_theory.exact import directional_derivatives
from grpo_theory.harness.forms import study_of
from grpo_theory.harness.study import table_of
from simulations.training import group_size, group_size_horizon, group_size_path, group_size_schedule
from simulations.training.cases import FAR, case_law, case_problem, case_settings, case_steps
from simulations.training.controlled import controlled, controlled_objectives, guide

FAR_CASE = case_settings("kl-linear", FAR, ("Constant", 2.0))


def test_the_control_has_mean_zero_and_takes_most_of_the_variance(seed):
    """|z| < 4.9; the drift that it subtracts is hundreds of standard errors, so an error of some percent in it would show."""
    problem, steps, runs = case_problem(FAR_CASE), case_steps(FAR_CASE, 6), 512
    laws = [case_law(FAR_CASE, n) for n in (3, 6)]
    plain, parts = controlled_objectives(
        problem,
        [guide(law) for law in laws],
        steps,
        [2, 4, 4, 8, 2, 4],
        budget=256,
        runs=runs,
        seed=np.random.SeedSequence(seed(1)),
    )
    for part in parts:
        error = part.std(axis=0) / np.sqrt(runs)
        assert (np.abs(part.mean(axis=0)) < 4.9 * error).all()
    once, twice, thrice = plain - parts[0], controlled(plain, parts[:2]), controlled(plain, parts)
    assert (once.var(axis=0) < 0.1 * plain.var(axis=0)).all()
    assert (twice.var(axis=0) < 0.7 * once.var(axis=0)).all()
    assert (thrice.var(axis=0) < 0.2 * twice.var(axis=0)).all()
    error = parts[0].std(axis=0) / np.sqrt(runs)
    path = case_law(FAR_CASE, 6).path
    drift = sum(
        step * directional_derivatives(problem, theta, slope[None])[0]
        for step, theta, slope in zip(steps, path, laws[1].slopes, strict=False)
    )
    assert 0.05 * drift > 4.9 * error[1]


def test_the_control_does_no_harm_where_it_says_nothing_and_moves_no_mean(seed):
    """Its multiple comes from the other half of the runs: noise of its own loses all weight, a sign turned round takes -1.

    With the multiple of the same runs the mean of few of them is off: by 0.32 with 8 runs of skewed data.
    """
    rng = np.random.default_rng(seed(2))
    values, control = rng.standard_normal((2, 4000, 1))
    zero = np.zeros_like(values)
    assert controlled(values, np.stack([zero, zero, zero])).var() == pytest.approx(values.var())
    assert controlled(values, np.stack([zero, 10.0 * control])).var() < 1.02 * values.var()
    assert controlled(values - control, np.stack([zero, -control, zero])).var() == pytest.approx(values.var(), rel=0.02)
    noise = rng.standard_normal((100_000, 8, 1))
    skewed, control = noise**2 - 1.0, noise * np.abs(noise)
    means = controlled(skewed, np.stack([np.zeros_like(noise), control])).mean(axis=(-2, -1))
    assert abs(means.mean()) < 4.9 * means.std() / np.sqrt(100_000)
    centred = control - control.mean(axis=1, keepdims=True)
    share = (centred * skewed).sum(axis=1, keepdims=True) / (centred**2).sum(axis=1, keepdims=True)
    assert (skewed - share * control).mean() < -0.25


def test_plain_objectives_are_those_of_ordinary_training(seed):
    problem, steps = case_problem(FAR_CASE), case_steps(FAR_CASE, 1)
    plain, _ = controlled_objectives(
        problem, [guide(case_law(FAR_CASE, 1))], steps, [4], budget=64, runs=8, seed=np.random.SeedSequence(5)
    )
    runs = gt.simulate_training(
        problem,
        problem.theta,
        "rloo",
        steps,
        batch_size=16,
        group_size=4,
        steps=1,
        replications=8,
        rng=np.random.SeedSequence(5, spawn_key=(0,)),
    )
    np.testing.assert_allclose(plain, runs.objectives, rtol=1e-14)


@pytest.fixture(scope="module")
def far_table():
    """The table of one case whose simulated losses are replaced by the law's, known to a thousandth."""
    settings = FAR_CASE | {
        "budget": 1024,
        "group_sizes": list(group_size.GROUP_SIZES),
        "checkpoints": list(group_size.CHECKPOINTS),
        "runs": 2,
        "expanded": True,
    }
    table = table_of(group_size.rows(settings, [group_size.simulate(settings, np.random.default_rng(1), 0)]))
    return table.assign(estimate=table["prediction"], standard_error=1e-3 * table["prediction"].abs(), replications=512)


def judged(table):
    """Return the verdicts on the claims that the study reads off a table."""
    return judge(list(group_size.claims(table)))


def verdicts(table):
    """Return the verdicts by statement, those of several group sizes as one set."""
    found = judged(table)
    return {name: set(part["verdict"]) for name, part in found.groupby("id")}


def test_verdicts_on_the_printed_group_size_follow_the_evidence(far_table):
    found = verdicts(far_table)
    assert found.pop("U9/printed") == {"refuted"}
    assert found == {name: {"confirmed"} for name in ("U9/policy-law", "U9/second order", "U9/noise-costs")}
    rows = judged(far_table).set_index("id")
    assert rows["power"].all()
    assert "n = 32" in rows.loc["U9/printed", "facts"]
    assert len(rows.loc["U9/policy-law"]) == len(group_size.GROUP_SIZES)
    best_is_two = far_table["estimate"].where(far_table["group_size"] != 2, 0.5 * far_table["estimate"])
    assert verdicts(far_table.assign(estimate=best_is_two))["U9/printed"] == {"confirmed"}
    assert verdicts(far_table.assign(estimate=1.1 * far_table["estimate"]))["U9/policy-law"] == {"confirmed"}
    assert verdicts(far_table.assign(estimate=1.3 * far_table["estimate"]))["U9/policy-law"] == {"refuted"}
    assert verdicts(far_table.assign(estimate=-far_table["estimate"]))["U9/noise-costs"] == {"refuted"}


def test_the_law_is_judged_at_each_group_size(far_table):
    """One group size that is off is refuted, and the others are not made worse by it."""
    off = far_table["estimate"].where(far_table["group_size"] != 128, 0.7 * far_table["estimate"])
    found = judged(far_table.assign(estimate=off)).set_index("problem")
    found = found[found["id"] == "U9/policy-law"]["verdict"]
    assert {where.rpartition(", ")[2]: verdict for where, verdict in found.items() if verdict == "refuted"} == {
        "G = 128": "refuted"
    }
    assert set(found) == {"confirmed", "refuted"}


def test_the_second_order_says_where_the_first_applies(far_table):
    """Up to a tenth of it the first is trusted, up to two fifths the sum of both. Where it is not computed there is no row."""
    sizes = len(group_size.GROUP_SIZES)
    for share, counts in ((0.09, (sizes, 0, sizes)), (-0.3, (0, sizes, sizes)), (0.5, (0, sizes, 0)), (np.nan, (0, 0, 0))):
        table = far_table.assign(second_order=share * far_table["prediction"].abs())
        found = judged(table)
        laws = (group_size.LAW, group_size.LAW_BEYOND, group_size.SECOND_ORDER)
        assert tuple((found["id"] == law.id).sum() for law in laws) == counts, share
    both = table.assign(second_order=-0.3 * table["prediction"], estimate=0.7 * table["estimate"])
    found = verdicts(both)
    assert (found["U9/policy-law, beyond"], found["U9/second order"]) == ({"refuted"}, {"confirmed"})


def test_the_law_without_damping_is_wrong_by_what_its_rows_say(far_table):
    """On kl-linear by 23 to 54 times; after one step there is nothing left to damp, and it is right."""
    ratios = far_table["undamped"] / far_table["prediction"]
    last, first = (ratios[far_table["checkpoint"] == n] for n in (32, 1))
    assert last.min() == pytest.approx(23.4, abs=0.1)
    assert last.max() == pytest.approx(53.8, abs=0.1)
    np.testing.assert_allclose(first, 1.0, rtol=1e-12)


def at_two_budgets(table, power=1.0, **changes):
    scale = 4.0**-power
    names = ("estimate", "standard_error", "prediction", "undamped")
    larger = table.assign(budget=4096, batch_size=4 * table["batch_size"], **{name: scale * table[name] for name in names})
    for size, factor in changes.items():
        at = larger["group_size"] == int(size[1:])
        larger.loc[at, "estimate"] *= factor
    return judged(pd.concat([table, larger])).set_index(["id", "problem"])


def test_the_best_group_size_is_carried_to_another_budget(far_table):
    """What counts is what the chosen size loses there: its own factor changes that, and a better rival, but no common factor."""
    where = ("U9/budgets", "kl-linear, Constant(2), from N = 1024 to 4096")
    for changes, verdict in (
        ({}, "confirmed"),
        ({"power": 0.5}, "confirmed"),
        ({"G8": 1.6}, "refuted"),
        ({"G64": 0.3}, "refuted"),
    ):
        row = at_two_budgets(far_table, **changes).loc[where]
        assert (row["verdict"], row["control"]) == (verdict, "refuted"), changes
        assert "G chosen = 8" in row["facts"]
        assert "G of the control = 128" in row["facts"]


def test_a_gain_is_carried_to_another_budget_too(far_table):
    """Where noise helps the chosen size must keep 1/sqrt(2) of the gain of any other."""
    gains = far_table.assign(estimate=-far_table["estimate"])
    where = ("U9/budgets", "kl-linear, Constant(2), from N = 1024 to 4096")
    kept, lost = at_two_budgets(gains).loc[where], at_two_budgets(gains, G2=3.0).loc[where]
    assert (kept["estimate"] < 0.0, lost["verdict"]) == (True, "refuted")


def test_budgets_share_a_curve_if_the_loss_falls_as_the_budget(far_table):
    for changes, odd in (({}, {}), ({"G128": 1.36}, {"G = 128": "refuted"})):
        found = at_two_budgets(far_table, **changes).loc["U9/one curve"]
        verdicts_by_size = {where.rpartition(", ")[2]: verdict for where, verdict in found["verdict"].items()}
        assert verdicts_by_size == {f"G = {size}": "confirmed" for size in group_size.GROUP_SIZES} | odd
    assert set(at_two_budgets(far_table, power=0.5).loc["U9/one curve", "verdict"]) == {"refuted"}


def test_the_best_group_size_is_carried_to_another_schedule(far_table):
    """Both ways; at another schedule with a curve of its own the choice of one can be right and that of the other wrong."""
    slow = far_table.assign(schedule="Harmonic(30, 14)")
    tilt = np.where(slow["group_size"] > 4, 0.3, 1.0) * np.where(slow["group_size"] == 16, 0.9, 1.0)
    both = pd.concat([far_table, slow.assign(estimate=slow["estimate"] * tilt)])
    found = judged(both).set_index("id").loc["U9/schedules"].set_index("problem")
    assert found["verdict"].to_dict() == {
        "kl-linear, from Constant(2) to Harmonic(30, 14)": "confirmed",
        "kl-linear, from Harmonic(30, 14) to Constant(2)": "confirmed",
    }
    far_off = slow.assign(estimate=slow["estimate"] * np.where(slow["group_size"] == 64, 0.3, 1.0))
    found = judged(pd.concat([far_table, far_off])).set_index("id").loc["U9/schedules"].set_index("problem")
    assert found["verdict"].to_dict() == {
        "kl-linear, from Constant(2) to Harmonic(30, 14)": "refuted",
        "kl-linear, from Harmonic(30, 14) to Constant(2)": "refuted",
    }


def paths(*names):
    """Return the constants along the paths of problems, by setting."""
    found = {}
    for cell in group_size_path.cells(True):
        if cell.settings["problem"] in names:
            path = pd.DataFrame(group_size_path.constants(cell.settings))
            found[f"{path['problem'].iloc[0]}, {path['schedule'].iloc[0]}"] = path
    return found


def test_the_path_of_the_best_group_size_is_judged_exactly():
    study, results = study_of(group_size_path), []
    for cell in study.cells(True):
        if cell.settings["problem"] in ("linear", "kl-tabular"):
            results += study.rows(cell.settings, [study.compute(cell.settings, None, 0)])
    found = judge(study.claims(table_of(results))).set_index(["id", "problem"])
    assert found["power"].all()
    assert found["verdict"].to_dict() == {
        ("U9/stays", "linear, Constant(8)"): "confirmed",
        ("U9/kept", "linear, Constant(8)"): "confirmed",
        ("U9/stays", "linear, Harmonic(120, 14)"): "confirmed",
        ("U9/kept", "linear, Harmonic(120, 14)"): "confirmed",
        ("U9/stays", "kl-tabular, Constant(2)"): "refuted",
        ("U9/kept", "kl-tabular, Constant(2)"): "confirmed",
    }
    part = paths("linear")["linear, Constant(8)"]
    kept = part["estimate"].iloc[0]
    pairs = [
        gt.GroupSizeLaw(*law).mse(128.0 / np.array([kept, best]), [kept, best])
        for *law, best in part[["c1", "c2", "c3", "estimate"]].to_numpy()
    ]
    estimate = found.loc[("U9/kept", "linear, Constant(8)"), "estimate"]
    assert estimate == pytest.approx(max(own / least for own, least in pairs), rel=1e-12)
    for path in paths("linear", "kl-tabular").values():
        later = path[path["checkpoint"] > 0]
        assert (later["ahead"] <= later["fixed"] + 1e-12).all()
        assert (later["fixed"] <= later["start"] + 1e-12).all()


def test_a_start_that_keeps_a_group_size_for_too_long_is_refuted():
    """c3 grows a thousandfold, and the best group size thirtyfold; what the start chose costs more than half a doubling."""
    path = paths("linear")["linear, Constant(8)"]
    c3 = np.where(path["checkpoint"] == 32, 1000.0, 1.0) * path["c3"]
    grown = path.assign(c3=c3, estimate=1.0 + np.sqrt(c3 / path["c1"]))
    stays, kept = group_size_path.judged(grown)
    assert stays.estimate > stays.prediction
    assert kept.estimate > kept.prediction


def test_plans_keep_to_the_budget_and_the_best_plan_loses_least():
    cell = group_size_schedule.cells(True)[0]
    found, law = group_size_schedule.plans(cell.settings), case_law(cell.settings, cell.settings["steps"])
    assert set(found) == set(group_size_schedule.PLANS)
    assert all((group_size_schedule.BUDGET % sizes == 0).all() for sizes in found.values())
    losses = {name: law.loss(group_size_schedule.BUDGET, sizes) for name, sizes in found.items()}
    assert losses["ahead"] < losses["fixed"] < losses["start"]


def test_horizons_are_judged_with_power():
    """Near a maximiser nearly all of a loss is its second control: some hundred runs do."""
    rows = []
    for cell in group_size_horizon.cells(True):
        settings = dict(cell.settings) | {"runs": 128}
        rows += group_size_horizon.rows(settings, [group_size_horizon.simulate(settings, np.random.default_rng(3), 0)])
    found = judge(list(group_size_horizon.claims(table_of(rows))), level=0.05).set_index(["id", "problem"])["verdict"]
    one, many = (f"two-speeds, Constant(0.05), N = 120, n = {n}" for n in (1, 100))
    assert found["U9/trace", one] == "refuted"
    assert found["U9/curvature", one] == "confirmed"
    assert found["U9/trace", many] == found["U9/curvature", many] == "confirmed"


@pytest.mark.parametrize(
    ("gain", "wrong", "verdict", "power"),
    [(1.0, 14.0, "confirmed", True), (-1.0, 14.0, "refuted", True), (1.0, 11.0, "no power", False)],
)
def test_the_control_of_following_has_runs_of_its_own(gain, wrong, verdict, power):
    """A plan that moves against the policy: it can survive, and it does not depend on the evidence."""
    exact = {"start": 12.0, "fixed": 10.0, "current": 10.0, "ahead": 9.0}
    common = {"problem": "p", "schedule": "s", "budget": 8, "steps": 1, "step": 1, "replications": 100, "standard_error": 0.01}
    rows = [common | {"plan": plan, "prediction": loss, "estimate": 12.0 - gain * (12.0 - loss)} for plan, loss in exact.items()]
    rows.append(common | {"plan": "against", "prediction": wrong, "estimate": wrong})
    found = judge(list(group_size_schedule.claims(pd.DataFrame(rows)))).set_index("id").loc["U9/follow"]
    assert (found["verdict"], found["power"]) == (verdict, power)
