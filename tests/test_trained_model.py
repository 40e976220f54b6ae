"""The records of the trained language model: what ships, that it fits together, and what the studies read off it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.data.trained import check_version
from grpo_theory.evidence.verdicts import judge
from grpo_theory.harness.study import table_of
from simulations.normalisation import trained_features
from simulations.runs import trained_sizes
from simulations.runs.recorded_scores import Scores, advantages_by_count, efficiency
from simulations.runs.seed_limits import jackknife

DATA = gt.data.trained_model()
ADAPTERS = gt.data.trained_model("adapters")
BOTH = pytest.mark.parametrize("data", [DATA, ADAPTERS], ids=["last block", "adapters"])
QUESTIONS = gt.data.arithmetic()
TRAINED = DATA.questions[: DATA.n_trained]
FEW_SHOT = 1
ROOT = Path(__file__).resolve().parents[1]
START = DATA.courses["plain"]


def head_probabilities(rows):
    """Return the digits' probabilities (Q, 10) by the shipped last states and head."""
    logits = QUESTIONS.hidden[FEW_SHOT, rows].astype(np.float64) @ QUESTIONS.head.T.astype(np.float64)
    return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))


@BOTH
def test_shapes_and_ranges(data):
    count, looks = data.n_trained, len(data.updates)
    assert len(set(data.questions.tolist())) == len(data.questions) > count
    assert data.updates[0] == 0
    assert len({(run.arm, run.seed) for run in data.runs}) == len(data.runs) == data.provenance["runs"]
    for run in data.runs:
        assert run.success.shape == run.held_out.shape == run.no_signal.shape == run.dropped.shape == (looks,)
        assert all(
            ((values >= 0.0) & (values <= 1.0)).all() for values in (run.success, run.held_out, run.no_signal, run.dropped)
        )
        assert run.by_question.shape == data.questions.shape
    for course in data.courses.values():
        places = len(course.updates)
        assert course.gram.shape == course.own_gram.shape == course.states.shape == (places, count, count)
        assert course.powers.shape == course.own_powers.shape == (places, count, 2)
    assert data.kernel.shape == (count, 10, count, 10)


@BOTH
def test_some_runs_learn_and_rewards_are_of_the_questions(data):
    assert max(run.success[-1] for run in data.runs) > 0.6
    assert 0.1 < data.courses["plain"].success[0].mean() < 0.2


def test_both_are_of_the_same_questions_and_start_alike():
    assert (DATA.questions == ADAPTERS.questions).all()
    np.testing.assert_allclose(DATA.probabilities, ADAPTERS.probabilities, atol=1e-4)


def test_what_was_not_trained_is_refused():
    with pytest.raises(ValueError, match=r"trained must be one of \['adapters', 'last block'\], got 'head'"):
        gt.data.trained_model("head")


@BOTH
def test_the_start_is_the_shipped_head(data):
    """Training starts where the head of the arithmetic set stands; another question's success does not fit."""
    probabilities = head_probabilities(data.questions)
    success = probabilities[np.arange(len(data.questions)), QUESTIONS.answers[data.questions]]
    expected = success[: data.n_trained].mean(), success[data.n_trained :].mean()
    rounded = "TF32" in data.provenance["update"]  # products of eleven bits, 5e-4 of each
    for run in data.runs:
        assert (run.success[0], run.held_out[0]) == pytest.approx(expected, abs=1e-3 if rounded else 1e-5)
    np.testing.assert_allclose(data.probabilities, probabilities[: data.n_trained], atol=2e-5)
    assert np.abs(data.courses["plain"].success[0] - success[: data.n_trained]).max() < 2e-5
    assert np.abs(np.roll(data.courses["plain"].success[0], 1) - success[: data.n_trained]).max() > 0.1
    hidden = QUESTIONS.hidden[FEW_SHOT, data.questions[: data.n_trained]].astype(np.float64)
    unit = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    np.testing.assert_allclose(data.courses["plain"].states[0], unit @ unit.T, atol=1e-3)


@BOTH
def test_each_question_ends_where_the_mean_does(data):
    for run in data.runs:
        parts = run.by_question[: data.n_trained], run.by_question[data.n_trained :]
        assert [part.mean() for part in parts] == pytest.approx([run.success[-1], run.held_out[-1]], abs=1e-3)


def problem_of_the_start(data=DATA):
    """Return the linear policy with the features of the start, a problem of the package."""
    size = data.kernel.shape[0] * data.kernel.shape[1]
    powers, directions = np.linalg.eigh(data.kernel.reshape(size, size))
    features = (directions * np.sqrt(np.maximum(powers, 0.0))).reshape(*data.kernel.shape[:2], size)
    theta = np.linalg.lstsq(features.reshape(size, size), np.log(data.probabilities).ravel(), rcond=None)[0]
    bandit = gt.Bandit(np.eye(10)[QUESTIONS.answers[TRAINED]])
    return gt.Problem(bandit, gt.LinearSoftmax(features), theta=theta)


@BOTH
def test_moments_of_scores_are_those_of_the_kernel_at_the_start(data):
    """The package's exact moments of the linear policy, against the recorded ones; balanced arrays have mean length 1."""
    problem, start = problem_of_the_start(data), data.courses["plain"]
    gradients = gt.moments(problem, problem.theta).prompt_gradients
    scale = np.abs(start.gram[0]).max()
    np.testing.assert_allclose(gradients @ gradients.T, start.gram[0], atol=1e-4 * scale)
    assert np.trace(start.gram[0]) / data.n_trained == pytest.approx(len(data.provenance["scales"]), rel=1e-5)
    assert np.abs(np.roll(gradients, 1, axis=0) @ gradients.T - start.gram[0]).max() > 0.1 * scale


@pytest.mark.parametrize("name", ["rloo", "dr_grpo", "grpo"])
@pytest.mark.parametrize("size", [2, 8, 64])
def test_efficiencies_of_records_are_the_packages(name, size):
    """By moments of scores alone, against the law of the package by enumeration."""
    problem = problem_of_the_start()
    scores = Scores(START.success[0], START.gram[0], START.powers[0])
    expected = gt.efficiency(problem, problem.theta, name, batch_size=128 // size, group_size=size)
    assert efficiency(scores, name, 128 // size, size) == pytest.approx(expected, rel=1e-3)
    longer = scores._replace(powers=2.0 * scores.powers)
    assert efficiency(longer, name, 128 // size, size) != pytest.approx(expected, rel=1e-3)


def test_advantages_by_count_need_an_estimator_that_reads_rewards():
    with pytest.raises(ValueError, match="rewards alone"):
        advantages_by_count("optimal_loo", 4)


def test_records_of_another_version_are_refused():
    check_version(DATA.provenance)
    with pytest.raises(ValueError, match="version 2, and this package reads version 1: reinstall"):
        check_version(dict(DATA.provenance) | {"version": 2})
    with pytest.raises(ValueError, match="version None"):
        check_version({})


def test_the_linear_policy_starts_as_the_records_do():
    success, between = next(trained_features.linear_course(DATA, [0, 10], divided=False, stride=0.1))
    assert success == pytest.approx(START.success[0].mean(), abs=1e-6)
    np.testing.assert_allclose(between, trained_features.cosines_of(START.gram[0]), atol=1e-4)


def test_the_linear_policy_climbs_as_the_packages_twin_does():
    """In kernel space, against the gradient of the package's problem of the same features: one first step, and a shorter one."""
    problem = problem_of_the_start()
    gradient = gt.moments(problem, problem.theta).gradient
    moved = problem.policy.log_probabilities(problem.theta + 1e-3 * gradient) - problem.policy.log_probabilities(problem.theta)
    length = np.sqrt((problem.policy.logit_map.logits(gradient) ** 2).sum(axis=1).mean())
    (_, (success, _)) = trained_features.linear_course(DATA, [0, 1], divided=False, stride=1e-3 * length)
    right = np.eye(10)[QUESTIONS.answers[TRAINED]]
    expected = (np.exp(np.log(DATA.probabilities) + moved) * right).sum(axis=1).mean()
    assert success == pytest.approx(expected, abs=1e-6)
    assert success > START.success[0].mean() + 1e-5


def sizes_of(place):
    """Return the table of the study of group sizes, of the last block or of adapters."""
    cell = trained_sizes.cells(quick=False)[place]
    results = [trained_sizes.simulate(cell.settings, np.random.default_rng(0), 0)]
    return table_of(list(trained_sizes.rows(cell.settings, results)))


@pytest.fixture(scope="module")
def sizes():
    """The table of group sizes where the last block learns."""
    return sizes_of(0)


@pytest.fixture(scope="module")
def adapted():
    """The table of group sizes where adapters learn."""
    return sizes_of(1)


def reached(table, data):
    """Return success on both sets of questions after the last update, by estimator and group size."""
    ends = table[(table["update"] == data.updates[-1]) & table["quantity"].isin(["success", "held out"])]
    return ends.set_index(["quantity", "estimator", "group_size"])["estimate"].sort_index()


def test_no_seed_judges_itself():
    """What a seed reaches does not change the rates and the group sizes that are chosen for it."""
    arms = trained_sizes.Arms.of(DATA.runs, "grpo")
    raised = arms.success.copy()
    raised[0, 0, 0] += 0.5
    other = trained_sizes.Arms(arms.labels, arms.rates, raised, arms.held_out)
    assert (other.choices()[:, 0] == arms.choices()[:, 0]).all()
    assert (other.best(-1)[0], (other.choices()[0, 1:] == 0).all()) == (arms.best(-1)[0], True)


def test_what_is_judged_of_group_sizes_has_controls(sizes, adapted):
    claims = list(trained_sizes.claims(pd.concat([sizes, adapted])))
    assert {claim.statement.id for claim in claims} == {"U9/trained model"}
    assert (judge(claims)["control"] == "refuted").all()


def test_the_page_says_what_the_group_sizes_reach(sizes):
    said = " ".join((ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").split())
    end = reached(sizes, DATA)
    plain, divided = ([f"{end['success', name, size]:.2f}" for size in (4, 16, 64)] for name in trained_sizes.ESTIMATORS)
    assert f"success of {plain[0]} under Dr. GRPO and {divided[0]} under GRPO" in said
    assert f"Groups of 16 end at {plain[1]} and {divided[1]}, groups of 64 at {plain[2]} and {divided[2]}" in said
    assert "by {:.0f} points over both estimators ({:.0f} to {:.0f})".format(*lead_of(sizes, "advised less largest")) in said
    assert "they lead by {:.0f} to {:.0f} points ({:.0f} at the least)".format(*at_rates(sizes)) in said
    lead, low, high = lead_of(sizes, "later less early best")
    assert f"is {-lead:.0f} points behind ({-high:.0f} to {-low:.0f})" in said
    assert "GRPO ends {:.1f} points above Dr. GRPO ({:.1f} to {:.1f})".format(*lead_of(sizes, "divided less plain")) in said
    assert lead_of(sizes, "advised less best")[0] == 0.0, "in every seed"
    held_out = end.loc["held out"]
    assert f"between {held_out.min():.2f} and {held_out.max():.2f}" in said
    efficiencies = sizes[sizes["quantity"] == "efficiency"].pivot_table("estimate", "group_size", ["estimator", "place"])
    start, late = (efficiencies.xs(place, axis=1, level="place") for place in ("start", "update 96"))
    assert (start.idxmax() == 4).all()
    assert (late.idxmax() == 2).all()
    assert (
        f"highest for groups of 4 ({start.loc[4].min():.2f}), and {start.loc[64].min():.2f} to {start.loc[64].max():.2f}" in said
    )
    lost = (1.0 - late.loc[4] / late.max()) * 100.0
    assert f"lose {lost.min():.0f}% to {lost.max():.0f}% of its efficiency" in said


def test_the_page_says_what_ratios_cost(sizes):
    said = " ".join((ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").split())
    end = sizes[(sizes["quantity"] == "reused, success") & (sizes["update"] == DATA.updates[-1])].set_index("ratio")["estimate"]
    assert f"PPO's clip ends at {end['by sign']:.2f} and training without any ratio at {end['none']:.2f}" in said
    leads = -100.0 * sizes[sizes["quantity"] == "reused, lead"].set_index("ratio")[["estimate", "high", "low"]]
    assert "The difference is {:.0f} points ({:.0f} to {:.0f})".format(*leads.loc["none"]) in said
    assert "is {:.0f} points behind PPO's clip ({:.0f} to {:.0f})".format(*leads.loc["upper only"]) in said
    assert "are {:.0f} points behind it ({:.0f} to {:.0f})".format(*leads.loc["unclipped"]) in said


def test_the_page_says_what_features_do():
    said = " ".join((ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").split())
    near = trained_features.near_orthogonal
    share = {name: [near(trained_features.cosines_of(gram)) for gram in DATA.courses[name].gram] for name in ("plain", "divided")}
    own = near(trained_features.cosines_of(START.own_gram[0]))
    assert f"is {share['plain'][0]:.0%} in balanced coordinates and {own:.0%} in the model's own" in said
    assert f"ends at {share['plain'][-1]:.0%} without division and at {share['divided'][-1]:.0%} with it" in said
    updates = START.updates.tolist()
    frozen = [near(list(trained_features.linear_course(DATA, updates, divided, 0.1))[-1][1]) for divided in (False, True)]
    assert "it ends at {:.0%} and {:.0%}".format(*frozen) in said
    states = {name: np.abs(trained_features.cosines_of(DATA.courses[name].states[-1])).mean() for name in share}
    first = np.abs(trained_features.cosines_of(START.states[0])).mean()
    assert f"falls from {first:.2f} to {states['plain']:.2f}, and to {states['divided']:.2f} with division" in said
    success = {name: DATA.courses[name].success.mean(axis=1) for name in share}
    place = updates.index(160)
    assert f"is {success['plain'][place]:.2f} without division and {success['divided'][place]:.2f} with it" in said
    assert f"it is {success['plain'][-1]:.2f} and {success['divided'][-1]:.2f}" in said
    assert f"records of {len(DATA.runs)} runs" in said


def lead_of(table, lead):
    """Return a lead with its limits, in points."""
    row = table[(table["quantity"] == "lead") & (table["lead"] == lead)].iloc[0]
    return [100.0 * row[name] for name in ("estimate", "low", "high")]


def at_rates(table, quantity="lead at a rate"):
    """Return the leads at single rates, from the smallest to the largest, and their lowest limit, in points."""
    rows = table[table["quantity"] == quantity]
    return [100.0 * value for value in (rows["estimate"].min(), rows["estimate"].max(), rows["low"].min())]


def test_the_page_says_what_adapters_reach(adapted):
    said = " ".join((ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").partition("## What adapters")[2].split())
    means = reached(adapted, ADAPTERS)
    for name, label in zip(trained_sizes.ESTIMATORS, ("Dr. GRPO", "GRPO"), strict=True):
        row = " | ".join(f"{means['success', name, size]:.2f}" for size in (2, 4, 8, 16, 32, 64))
        assert f"| {label} | {row} |" in said
    smallest, largest, low = at_rates(adapted)
    assert f"{smallest:.0f} to {largest:.0f} points of success above groups of 64 ({low:.0f} at the least)" in said
    lead = lead_of(adapted, "advised less largest")
    assert "they lead by {:.0f} points ({:.0f} to {:.0f})".format(*lead) in said
    front, questions = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in ("README.md", "docs/three_questions.md")
    )
    assert "groups of 4 led groups of 64 by {:.0f} points ({:.0f} to {:.0f}) of training success".format(*lead) in front
    assert f"end {smallest:.0f} to {largest:.0f} points of success above groups of 64" in questions
    assert f"limits of ten seeds are {low:.0f} points at the least" in questions
    later = "lead by {:.0f} to {:.0f} points ({:.0f} at the".format(*at_rates(adapted, "lead at a rate, later seeds"))
    assert later in said
    assert later[8:].replace("(", "").replace("points ", "points, ") in questions
    assert "the lead is {:.0f} points ({:.0f} to {:.0f})".format(*lead) in questions
    best, lowest, highest = lead_of(adapted, "advised less best")
    assert f"end {best:.1f} points above the size that the other seeds chose ({lowest:.1f} to {highest:.1f})" in said
    assert "GRPO ends {:.1f} points above Dr. GRPO ({:.1f} to {:.1f})".format(*lead_of(adapted, "divided less plain")) in said
    behind, low, high = lead_of(adapted, "later less early best")
    assert f"is {-behind:.0f} point behind ({-high:.0f} to {-low:.0f})" in said
    twos = 100.0 * (means["success", "grpo", 2] - means["success", "dr_grpo", 2])
    assert f"there the difference is {abs(twos):.1f} points" in said
    held_out = means.loc["held out"]
    assert f"between {held_out.min():.2f} and {held_out.max():.2f}" in said
    efficiencies = adapted[adapted["quantity"] == "efficiency"].pivot_table("estimate", "group_size", ["estimator", "place"])
    start = efficiencies.xs("start", axis=1, level="place")
    assert (start.idxmax() == 4).all()
    assert (
        f"highest for groups of 4 ({start.loc[4].min():.2f}), and {start.loc[64].min():.2f} to {start.loc[64].max():.2f}" in said
    )
    lost = (1.0 - efficiencies.loc[4] / efficiencies.max()) * 100.0
    assert f"lose at most {lost.max():.0f}% of" in said


def words_of(name, part=""):
    """Return the words of a page, from a heading on, one after another."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return " ".join(text[text.index(part) :].split())


def in_points(row):
    """Return an estimate and its limits, in points of a hundred."""
    return [100.0 * row[name] for name in ("estimate", "low", "high")]


def leads_of(table, quantity, *keys):
    """Return the numbers and the limits of leads as pages print them, by keys: ("13", "1 to 25"); and both turned round."""
    rows = table[table["quantity"] == quantity].set_index(list(keys)).sort_index()
    at = {key: in_points(rows.loc[key]) for key in rows.index}
    ahead = {key: (f"{lead:.0f}", f"{low:.0f} to {high:.0f}") for key, (lead, low, high) in at.items()}
    behind = {key: (f"{-lead:.0f}", f"{-high:.0f} to {-low:.0f}") for key, (lead, low, high) in at.items()}
    return ahead, behind


def test_the_page_says_what_ratios_cost_where_adapters_learn(adapted):
    said, front, questions = (words_of(name) for name in ("docs/trained_model.md", "README.md", "docs/three_questions.md"))
    own = adapted[adapted["quantity"] == "reused, success at own best rates"].set_index(["ratio", "update"]).sort_index()
    rates = np.unique([run.arm.rate for run in ADAPTERS.runs if run.arm.reuse > 1])
    ends = own.xs(96, level="update")["rate"]
    assert ((ends > rates[0]) & (ends < rates[-1])).all(), "no use of ratios is best at the end of the grid"
    assert f"After 96 the clip has {own.loc[('by sign', 96), 'estimate']:.2f}" in said
    ahead, behind = leads_of(adapted, "reused, lead at own best rates", "ratio", "update")
    none, upper, bare = (behind[ratio, 96] for ratio in ("none", "upper only", "unclipped"))
    assert (
        "no ratio is level with PPO's clip ({} points, {})".format(*(one.replace("-0", "0") for one in ahead["none", 24])) in said
    )
    assert "ratio is {} points behind it ({})".format(*none) in said
    assert "is then {} points behind PPO's clip ({})".format(*upper) in said
    assert "Ratios without any clip are {} points behind it as well ({})".format(*bare) in said
    assert "After 96 it was {} points ({}) behind, and ratios without a clip were {} ({}) behind".format(*none, *bare) in front
    assert "it was {} points of success behind the clip ({})".format(*none) in questions
    assert "ratios without the clip were {} points behind ({})".format(*bare) in questions
    row = adapted[(adapted["quantity"] == "reused, lead at own best rates") & (adapted["update"] == 96)].set_index("ratio")
    wide = stdtrit(9, 1.0 - 0.025 / 3.0) * row["standard_error"]
    assert (row["estimate"] + wide > 0.0).all(), "limits that count all three include 0"


def test_the_page_says_what_ratios_cost_at_single_rates(adapted):
    said, questions = words_of("docs/trained_model.md"), words_of("docs/three_questions.md")
    end = adapted[(adapted["quantity"] == "reused, success") & (adapted["update"] == ADAPTERS.updates[-1])]
    low = end[end["trained"] == "adapters"].pivot_table("estimate", "rate", "ratio").iloc[:2]
    assert (low.max(axis=1) - low.min(axis=1)).max() < 0.02
    assert f"have reached {low.min().min():.2f} to {low.max().max():.2f} only" in said
    lost = -100.0 * adapted[adapted["quantity"] == "reused, lead"].set_index(["ratio", "rate"])[["estimate", "high"]]
    none = lost.loc["none"].sort_index().iloc[2:]
    assert len(none) == 3
    assert none["estimate"].is_monotonic_increasing, "farther behind the larger the rate"
    points, least = (
        f"{none['estimate'].min():.0f} to {none['estimate'].max():.0f} points behind",
        f"{none['high'].min():.0f} at the least",
    )
    assert f"is {points} PPO's clip ({least})" in said
    assert f"no ratio ended {points} the clip, {least}" in questions


def test_the_pages_say_how_the_lead_falls(adapted):
    said, front, questions = (words_of(name) for name in ("docs/trained_model.md", "README.md", "docs/three_questions.md"))
    (lead, _), (fall, _) = (leads_of(adapted, f"longer, {name}", "estimator", "update") for name in ("lead", "lost of the lead"))
    first, second, last = (lead["both", update] for update in (96, 192, 384))
    assert "of groups of 4 was {} points ({}) after 96 updates. It was {} ({})".format(*first, *second) in said
    assert "after 192, and {} ({}) after 384".format(*last) in said
    assert (
        "it fell by {} points ({}), and under Dr. GRPO alone by {} ({})".format(*fall["both", 384], *fall["dr_grpo", 384]) in said
    )
    plain, divided = (lead[name, 384] for name in trained_sizes.ESTIMATORS)
    assert "At the end it was {} points under Dr. GRPO ({}) and {} under GRPO ({})".format(*plain, *divided) in said
    assert "In five other seeds it was {} points ({}) after 96 updates and {} ({}) after 384".format(*first, *last) in front
    assert "it was {} points ({}) after 96 updates, and {} ({}) after 384".format(*first, *last) in questions
    reached = adapted[adapted["quantity"] == "longer, success"].set_index(["group_size", "update", "estimator"])["estimate"]
    reached = reached.sort_index()
    ends, most, early = (
        [f"{reached.loc[place][name]:.2f}" for name in trained_sizes.ESTIMATORS] for place in ((4, 384), (64, 384), (4, 96))
    )
    assert "reached {} under Dr. GRPO and {} under GRPO, groups of 64 {} and {}.".format(*ends, *most) in said
    assert f"groups of 4 had {early[0]} and {early[1]}" in said
    single, _ = leads_of(adapted, "longer, lead at a rate", "rate")
    assert f"ended {min(int(one) for one, _ in single.values())} to {max(int(one) for one, _ in single.values())} points" in said
    assert "at 1e-4 ({} points, {}) and at 2e-4 ({} points, {})".format(*single[1e-4], *single[2e-4]) in said
    assert all(limits.startswith("-") for rate, (_, limits) in single.items() if rate < 1e-4)
    assert f"and {len(ADAPTERS.longer)} longer ones of {ADAPTERS.longer_updates[-1]} updates" in said


def test_the_page_says_which_rates_longer_runs_chose():
    said = words_of("docs/trained_model.md")
    chosen, means = {}, {}
    for name in trained_sizes.ESTIMATORS:
        arms = trained_sizes.Arms.of(ADAPTERS.longer, name)
        for place, size in enumerate(arms.labels.tolist()):
            chosen[name, size] = arms.choices()[place, :, -1]
            means[name, size] = arms.success[place, ..., -1].mean(axis=1)
    own = chosen.pop(("grpo", 4))
    assert (np.bincount(own, minlength=4) == [3, 0, 0, 2]).all()
    assert f"is {means['grpo', 4].min():.2f} to {means['grpo', 4].max():.2f} at the four" in said
    assert sum(np.isin(one, (0, 3)).sum() for one in chosen.values()) == 1, "of the other arms one seed got an end of the grid"


def test_longer_runs_have_seeds_of_their_own_and_go_on_after_the_others_end():
    assert not {run.seed for run in ADAPTERS.longer} & {run.seed for run in ADAPTERS.runs}
    assert {run.success.size for run in ADAPTERS.longer} == {ADAPTERS.longer_updates.size}
    there = ADAPTERS.longer_updates.tolist().index(ADAPTERS.updates[-1])
    assert np.mean([run.success[-1] - run.success[there] for run in ADAPTERS.longer]) > 0.1
    assert DATA.longer == ()
    assert np.ptp([run.success[0] for run in (*ADAPTERS.runs, *ADAPTERS.longer)]) < 1e-6


@pytest.mark.parametrize(("seeds", "alone"), [(5, 0.90), (10, 0.85)])
def test_limits_of_choices_hold_and_those_of_seeds_alone_do_not(seeds, alone):
    """Means of seeds, each at the rate that the others chose of four equal ones: the truth is 0; who reads 95% may get 94%."""
    drawn = np.random.default_rng(7).normal(size=(1500, seeds, 4))
    held = {"seeds alone": 0, "choices": 0}
    for values in drawn:
        arms = trained_sizes.Arms(np.array([4]), np.arange(4.0), values.T[None, :, :, None], values.T[None, :, :, None])
        found = jackknife(lambda seed, arms=arms: arms.without(seed).tuned().mean(axis=1)[0, 0], seeds)
        tuned = arms.tuned()[0, :, 0]
        for name, error in (("choices", found["standard_error"]), ("seeds alone", tuned.std(ddof=1) / np.sqrt(seeds))):
            held[name] += abs(tuned.mean()) <= stdtrit(seeds - 1, 0.975) * error
    assert held["choices"] / 1500 > 0.94
    assert held["seeds alone"] / 1500 < alone


def test_the_page_says_what_features_of_adapters_do():
    said = " ".join((ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").partition("## What adapters")[2].split())
    near, cosines = trained_features.near_orthogonal, trained_features.cosines_of
    courses = {name: ADAPTERS.courses[name] for name in ("plain", "divided")}
    share = {name: [near(cosines(gram)) for gram in course.gram] for name, course in courses.items()}
    own = near(cosines(courses["plain"].own_gram[0]))
    assert f"is {share['plain'][0]:.0%} at the start in balanced coordinates and {own:.0%} in the model's own" in said
    lowest = int(np.argmin(share["plain"]))
    success = {name: course.success.mean(axis=1) for name, course in courses.items()}
    assert f"falls to {min(share['plain']):.0%} at a success of {success['plain'][lowest]:.2f}, and ends at" in said
    assert f"ends at {share['plain'][-1]:.0%}. With division it falls to {min(share['divided']):.0%} and ends at" in said
    assert f"ends at {share['divided'][-1]:.0%}. Learning" in said
    updates = courses["plain"].updates.tolist()
    frozen = [near(list(trained_features.linear_course(ADAPTERS, updates, divided, 0.1))[-1][1]) for divided in (False, True)]
    assert "it ends at {:.0%} and {:.0%}".format(*frozen) in said
    states = {name: np.abs(cosines(course.states[-1])).mean() for name, course in courses.items()}
    first = np.abs(cosines(courses["plain"].states[0])).mean()
    assert f"falls from {first:.2f} to {states['plain']:.2f}, and to {states['divided']:.2f} with division" in said
    place = updates.index(80)
    assert (
        f"After 80 updates the success is {success['plain'][place]:.2f} without division and "
        f"{success['divided'][place]:.2f} with it" in said
    )
    assert f"the means are {success['plain'][-1]:.2f} and {success['divided'][-1]:.2f}" in said
    lost = [int((courses[name].success[-1] < 0.01).sum()) for name in ("plain", "divided")]
    assert (lost, int((courses["divided"].success[place] > 0.9).sum())) == ([5, 1], 37)
    assert f"has {len(ADAPTERS.runs)} runs" in " ".join((ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").split())
