"""The records of the trained language model: what ships, that it fits together, and what the studies read off it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

import grpo_theory as gt
from grpo_theory.data.trained import check_version
from grpo_theory.evidence.verdicts import judge
from grpo_theory.harness.sides import study_of
from simulations.normalisation import trained_features
from simulations.runs import recorded_runs, trained_sizes
from simulations.runs.recorded_scores import Scores, advantages_by_count, efficiency

DATA = gt.data.trained_model()
ADAPTERS = gt.data.trained_model("adapters")
BOTH = pytest.mark.parametrize("data", [DATA, ADAPTERS], ids=["last block", "adapters"])
QUESTIONS = gt.data.arithmetic()
TRAINED = DATA.questions[: DATA.n_trained]
FEW_SHOT = 1
ESTIMATORS = trained_sizes.ESTIMATORS
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


# ---- group sizes and ratios: the study and the page


@pytest.fixture(scope="module")
def tool():
    """What writes the tables of the page."""
    spec = importlib.util.spec_from_file_location("write_trained_model", ROOT / "tools" / "write_trained_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(tool):
    """The table of the study of group sizes."""
    return tool.study()


@pytest.fixture(scope="module")
def leads(table):
    """Leads in points, by what learns, runs, estimator, the two that are compared, and updates."""
    own = table[table["quantity"] == "lead"].set_index(["trained", "runs", "estimator", "first", "second", "update"]).sort_index()
    numbers = ["estimate", "standard_error", "low", "high", "low_at_once", "high_at_once"]
    return own.assign(**{name: 100.0 * own[name] for name in numbers})


def test_arms_have_the_seeds_of_all():
    """Rates and sizes that some seeds lack are left out: the last block's groups of 2, 8 and 32, and its smallest rate."""
    arms = recorded_runs.arms_of(DATA.runs)
    assert {arm for _, arm in arms} == {4, 16, 64, *recorded_runs.RATIOS.values()}
    assert arms["grpo", 4].shape == (2, 5, len(DATA.updates))
    (own,) = (run for run in DATA.runs if run.arm[:4] == ("grpo", "Adam", 4, 4e-4) and run.seed == 3)
    np.testing.assert_array_equal(arms["grpo", 4][1, 3], own.success)


def test_without_a_choice_a_lead_is_that_of_paired_seeds(leads):
    """The last block's uses of ratios have one rate: Student's limits of the seeds' differences, once and for all leads."""
    arms = recorded_runs.arms_of(DATA.runs)
    own = 100.0 * (arms["dr_grpo", "PPO's clip"] - arms["dr_grpo", "no ratio"])[0, :, -1]
    row, error = leads.loc["last block", "usual", "dr_grpo", "PPO's clip", "no ratio", 96], own.std(ddof=1) / np.sqrt(5.0)
    assert (row["estimate"], row["standard_error"]) == pytest.approx((own.mean(), error))
    count = int((leads.index.get_level_values("trained") == "last block").sum())
    for name, tail in (("high", 0.025), ("high_at_once", 0.05 / 2 / 2 / count)):
        assert row[name] == pytest.approx(own.mean() + stdtrit(4, 1.0 - tail) * error)
    assert not row["at_end"]


def test_every_arm_and_look_is_compared(leads):
    def looks(trained, runs, estimator, first):
        return {key[:2] for key in leads.loc[trained, runs, estimator, first].index}

    usual, longer = (12, 24, 48, 96), (12, 24, 48, 96, 192, 384)
    for estimator in ("both", "dr_grpo", "grpo"):
        others = {(f"groups of {size}", look) for size in (2, 8, 16, 32, 64) for look in usual}
        assert looks("adapters", "usual", estimator, "groups of 4") == others
        assert looks("adapters", "longer", estimator, "groups of 4") == {("groups of 64", look) for look in longer}
    ratios = list(recorded_runs.RATIOS.values())
    for trained in trained_sizes.TRAINED:
        for place, first in enumerate(ratios[:-1]):
            expected = {(second, look) for second in ratios[place + 1 :] for look in usual}
            assert looks(trained, "usual", "dr_grpo", first) == expected
    pairs = {("groups of 4", "groups of 64"), ("PPO's clip", "no ratio")}
    assert {(*key[3:5], key[5]) for key in leads[leads["planned"]].index} == {(*pair, 96) for pair in pairs}
    assert leads["planned"].sum() == 4


def test_the_fall_of_a_lead_is_what_it_loses(leads):
    falls = leads.loc["adapters", "longer"].xs("the lead then", level="second")["estimate"].droplevel("first")
    lead = leads.loc["adapters", "longer"].xs("groups of 64", level="second")["estimate"].droplevel("first")
    for (estimator, update), fall in falls.items():
        assert fall == pytest.approx(lead[estimator, 96] - lead[estimator, update])


def test_what_is_judged_of_group_sizes_has_controls(table):
    claims = study_of(trained_sizes).claims(table)
    assert {claim.statement.id for claim in claims} == {"U9/trained model"}
    assert (judge(claims)["control"] == "refuted").all()


def test_the_tables_of_the_page_are_those_of_the_study(tool, table):
    page = (ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8")
    assert tool.with_tables(page, table) == page
    assert tool.with_tables(page, table.assign(estimate=table["estimate"] / 2.0)) != page


def words():
    """Return the words of the page, one after another."""
    return " ".join((ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("groups of 4 lead groups of 64 by {:.0f} points ({:.0f} to {:.0f})", ("adapters", "usual", "both", 4, 64, 96)),
        ("groups of 32 is {:.0f} points ({:.0f} to {:.0f})", ("adapters", "usual", "both", 4, 32, 96)),
        ("Over 16 it is {:.0f} ({:.0f} to {:.0f})", ("adapters", "usual", "both", 4, 16, 96)),
        ("lead groups of 8 by {:.0f} points ({:.1f} to {:.1f})", ("adapters", "usual", "both", 4, 8, 12)),
        ("lead of 4 over 64 of {:.0f} points ({:.0f} to {:.0f})", ("adapters", "later seeds", "both", 4, 64, 96)),
        ("have a lead of {:.0f} points ({:.0f} to {:.0f})", ("adapters", "longer", "both", 4, 64, 96)),
        ("After 384 updates it is {:.0f} ({:.1f} to {:.1f})", ("adapters", "longer", "both", 4, 64, 384)),
        (
            "fell by {:.0f} points ({:.0f} to {:.0f})",
            ("adapters", "longer", "both", "lead of 4 over 64 at 96", "the lead then", 384),
        ),
        ("groups of 64 by {:.0f} points ({:.0f} to {:.0f}) after", ("last block", "usual", "both", 4, 64, 96)),
        ("and groups of 16 by {:.0f} ({:.0f} to {:.0f})", ("last block", "usual", "both", 4, 16, 96)),
        (
            "ends {:.1f} points above Dr. GRPO ({:.1f} to {:.1f})",
            ("adapters", "usual", "both", "GRPO, larger groups", "Dr. GRPO, larger groups", 96),
        ),
        (
            "the difference is {:.0f} points ({:.0f} to {:.0f})",
            ("adapters", "usual", "both", "GRPO, groups of 2", "Dr. GRPO, groups of 2", 96),
        ),
        ("leads no ratio by {:.0f} points ({:.0f} to {:.0f})", ("adapters", "usual", "dr_grpo", "PPO's clip", "no ratio", 96)),
        ("ahead of no ratio ({1:.0f} to {2:.0f})", ("adapters", "usual", "dr_grpo", "PPO's clip", "no ratio", 48)),
        ("{:.0f} points behind it ({:.0f} to {:.0f})", ("adapters", "usual", "dr_grpo", "PPO's clip", "ratio, no clip", 96)),
        ("from above {:.0f} ({:.0f} to {:.0f})", ("adapters", "usual", "dr_grpo", "PPO's clip", "clip from above", 96)),
        (
            "ends {:.0f} points behind the clip ({:.0f} to {:.0f})",
            ("last block", "usual", "dr_grpo", "PPO's clip", "no ratio", 96),
        ),
    ],
)
def test_the_page_says_what_leads(leads, text, key):
    sides = [f"groups of {side}" if isinstance(side, int) else side for side in key[3:5]]
    row = leads.loc[(*key[:3], *sides, key[5])]
    assert text.format(row["estimate"], row["low"], row["high"]) in words()


def test_the_page_says_how_many_leads_are_read_and_what_was_planned(leads):
    once, all_at_once = ((leads[f"low{which}"] * leads[f"high{which}"] > 0.0) for which in ("", "_at_once"))
    assert f"has {len(leads)} leads, and 95% limits of {once.sum()} exclude 0" in words()
    assert f"exclude 0 for {all_at_once.sum()} of them" in words()
    planned = leads[leads["planned"]].loc["adapters"]
    half = stdtrit(9, 1.0 - 0.025 / 4.0) * planned["standard_error"]
    low, high = planned["estimate"] - half, planned["estimate"] + half
    limits = [f"{first:.0f} to {last:.0f}" for first, last in zip(low, high, strict=True)]
    assert f"are {limits[1]} points for the clip, and {limits[0]} for the group size" in words()


def test_the_page_says_that_the_clip_is_behind_early(leads):
    clip = leads.loc["adapters", "usual", "dr_grpo", "PPO's clip"].xs(12, level="update")
    assert f"by {-clip['estimate'].max():.0f} to {-clip['estimate'].min():.0f} points.**" in words()
    assert (clip["high"] < 0.0).all()
    assert (clip["high_at_once"] > 0.0).all()
    arms = recorded_runs.arms_of(ADAPTERS.runs)
    best = np.array([arms["dr_grpo", ratio].mean(axis=1).argmax(axis=0) for ratio in recorded_runs.RATIOS.values()])
    looks = ADAPTERS.updates.tolist()
    assert (best[:, looks.index(12)] == 4).all()
    assert (best[:, looks.index(24)] == 4).all()
    assert ((best[:, -1] > 0) & (best[:, -1] < 4)).all()
    sizes = np.array([arm.mean(axis=1).argmax(axis=0) for (_, name), arm in arms.items() if isinstance(name, int)])
    assert (sizes[:, looks.index(24)] == 3).all()


def test_the_page_says_what_single_rates_and_efficiencies_do(table):
    ends = table[(table["quantity"] == "success at a rate") & (table["runs"] == "usual")]
    by_size = ends.pivot_table("estimate", ["trained", "rate_number"], "group_size")
    ahead = 100.0 * (by_size[4] - by_size[64])
    assert f"groups of 4 end {ahead['adapters'].min():.0f} to {ahead['adapters'].max():.0f} points above" in words()
    assert "they end {:.0f} and {:.0f} points above".format(*sorted(ahead["last block"])) in words()
    ratios = ends[ends["trained"] == "adapters"].pivot_table("estimate", "rate_number", "arm")[
        list(recorded_runs.RATIOS.values())
    ]
    behind = 100.0 * (ratios["PPO's clip"] - ratios["no ratio"])
    assert "ends {:.0f}, {:.0f} and {:.0f} points behind".format(*behind.iloc[2:]) in words()
    few = ratios.iloc[:2]
    assert (few.max(axis=1) - few.min(axis=1)).max() < 0.02
    assert f"but reach {few.min().min():.2f} to {few.max().max():.2f} only" in words()
    known = table[table["quantity"] == "efficiency"].pivot_table("estimate", "group_size", ["trained", "estimator", "place"])
    start = known.xs("start", axis=1, level="place")
    assert (start.idxmax() == 4).all()
    small, large = (f"{start.loc[size].min():.2f} to {start.loc[size].max():.2f}" for size in (4, 64))
    assert f"is then {small}, against {large} for groups of 64" in words()
    assert f"lose at most {100.0 * (1.0 - known.loc[4] / known.max()).max():.0f}% of" in words()
    held_out = table[(table["quantity"] == "held out") & (table["update"] == 96) & (table["runs"] == "usual")]
    ends = held_out[held_out["group_size"].notna()].groupby("trained")["estimate"].agg(["min", "max"])
    for trained, name in (("adapters", "adapters"), ("last block", "the last block")):
        assert "between {:.2f} and {:.2f} with".format(*ends.loc[trained]) + f" {name}" in words()


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
    first = near(trained_features.cosines_of(START.own_gram[0]))
    names = ("plain", "divided", *trained_features.SAMPLED)
    falls = {name: 100.0 * (first - near(trained_features.cosines_of(DATA.courses[name].own_gram[-1]))) for name in names}
    assert sum(fall >= 10.0 for fall in falls.values()) == 4
    assert f"falls by {falls['plain']:.1f} points without division" in said
    assert "falls by {:.1f} and {:.1f} in the sampled runs with".format(*(falls[f"{one}, G = 4"] for one in ESTIMATORS)) in said
    assert f"and by {falls['dr_grpo, G = 64']:.1f} in Dr. GRPO's with groups of 64" in said


def test_longer_runs_have_seeds_of_their_own_and_go_on_after_the_others_end():
    assert not {run.seed for run in ADAPTERS.longer} & {run.seed for run in ADAPTERS.runs}
    assert {run.success.size for run in ADAPTERS.longer} == {ADAPTERS.longer_updates.size}
    there = ADAPTERS.longer_updates.tolist().index(ADAPTERS.updates[-1])
    assert np.mean([run.success[-1] - run.success[there] for run in ADAPTERS.longer]) > 0.1
    assert DATA.longer == ()
    assert np.ptp([run.success[0] for run in (*ADAPTERS.runs, *ADAPTERS.longer)]) < 1e-6


def test_the_page_says_what_features_of_adapters_do():
    said = " ".join(
        (ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8").partition("exact gradients of the adapters")[2].split()
    )
    near, cosines = trained_features.near_orthogonal, trained_features.cosines_of
    courses = {name: ADAPTERS.courses[name] for name in ("plain", "divided")}
    share = {name: [near(cosines(gram)) for gram in course.gram] for name, course in courses.items()}
    own = near(cosines(courses["plain"].own_gram[0]))
    assert f"is {share['plain'][0]:.0%} at the start in balanced coordinates and {own:.0%} in the model's own" in said
    lowest = int(np.argmin(share["plain"]))
    success = {name: course.success.mean(axis=1) for name, course in courses.items()}
    assert f"falls to {min(share['plain']):.0%} at a success of {success['plain'][lowest]:.2f}, and ends at" in said
    assert f"ends at {share['plain'][-1]:.0%}. With division it falls to {min(share['divided']):.0%} and ends at" in said
    assert f"ends at {share['divided'][-1]:.0%}. With the features" in said
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
