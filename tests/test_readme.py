"""Python on pages runs as printed, and what the README says in numbers is so."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import DOCS, SAID, blocks, check_what_is_said, run_blocks

import grpo_theory as gt
from grpo_theory.harness.verdicts import Verdicts
from grpo_theory.page.digest import COLUMNS
from grpo_theory.problem.gallery import KINDS
from simulations.collection import catalogue
from simulations.length import ratios_by_length

TOP = DOCS.parent
README, CONTRIBUTING = ((TOP / name).read_text(encoding="utf-8") for name in ("README.md", "docs/contributing.md"))
PAGES = (
    "start",
    "sequences",
    "training",
    "coverage",
    "estimators",
    "inequalities",
    "contributing",
    "own_study",
    "long_responses",
    "runs_allocation",
    "runs_staleness",
    "twin",
)
"""Pages of the documentation with programs in them, besides the findings; README.md has a test of its own."""
VERDICTS = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
POWERFUL = VERDICTS[VERDICTS["control"] == "refuted"]


def read(page):
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def between(text, mark):
    """Return what stands between the marks of a part of a page."""
    return text.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- end of {mark} -->")[0]


def claims(name, pattern=""):
    """Return the verdicts of a claim in the settings that match."""
    return POWERFUL[(POWERFUL["id"] == name) & POWERFUL["problem"].str.contains(pattern)]


def test_the_readmes_program_runs_in_six_lines_and_shows_what_it_says(registry, tmp_path):
    (block,) = blocks(README)
    assert len([line for line in block.splitlines() if line.strip()]) == 6
    assert len(SAID.findall(block)) == 3
    names = run_blocks(README, tmp_path)
    assert block in read("start")
    law = gt.gradient_law(names["problem"], names["problem"].theta, "grpo", **names["sizes"])
    longer = np.linalg.norm(law.mean) / np.linalg.norm(law.true_gradient)
    assert all(f"another gradient, here {longer:.1f} times as long" in " ".join(page.split()) for page in (README, read("start")))


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_the_documentation_runs(page, registry, tmp_path):
    names = run_blocks(read(page), tmp_path)
    assert len(blocks(read(page))) >= 1
    check = {"start": check_start, "sequences": check_sequences, "coverage": check_coverage, "inequalities": check_inequalities}
    check |= {"estimators": check_estimators, "contributing": check_contributing, "long_responses": check_long_responses}
    check.get(page, lambda names: None)(names)


def test_every_page_with_programs_is_run():
    of_a_model_of_the_readers = {"sketches"}
    tested_elsewhere = {"planner", "live", "report"}
    found = {path.stem for path in DOCS.glob("*.md") if blocks(path.read_text(encoding="utf-8"))}
    assert found == {*PAGES, *of_a_model_of_the_readers, *tested_elsewhere}


def check_start(names):
    constants = gt.group_size_law(gt.Problem(names["bandit"], gt.TabularSoftmax(2, 3)), np.zeros(6))
    assert constants.optimum == pytest.approx(1.0 + np.sqrt(constants.c3 / constants.c1), rel=1e-12)


def check_long_responses(names):
    assert f"TRL's default: {names['efficiency']:.3f}, exact" in read("long_responses")
    assert f"for rloo: {names['best']:.1f}" in read("long_responses")
    assert f"for rloo before training: {names['start']:.1f}" in read("long_responses")


def check_sequences(names):
    assert names["tree"].n_responses == 15


def check_coverage(names):
    assert 0.5 < names["tried"].coverage < 0.7
    assert not names["tried"].consistent()


def check_inequalities(names):
    np.testing.assert_allclose(sorted(names["worst"].parameters[:2]), [0.0, 1.0], atol=1e-3)
    assert abs(names["worst"].parameters[2]) < 0.1


def check_estimators(names):
    assert len(SAID.findall(read("estimators"))) == 4
    sizes = {"batch_size": 2, "group_size": 4}
    problem = gt.gallery.problem("tabular")
    run = gt.simulate_gradients(problem, problem.theta, "shrunk", **sizes, replications=20_000, rng=0)
    exact = gt.gradient_mse(problem, problem.theta, "shrunk", **sizes)
    assert abs(run.mse[0] - exact) < 4.9 * run.mse_standard_error[0]


def means_of_all_groups(batch, advantages):
    advantages[:, :] = batch.rewards - batch.rewards.mean(axis=1, keepdims=True)


def means_of_one_group_each(batch, advantages):
    for b in range(batch.rewards.shape[0]):
        advantages[b] = batch.rewards[b] - batch.rewards[b].mean()


def test_a_kernel_may_use_what_the_page_says_and_no_more(registry):
    gt.estimator("all")(means_of_all_groups)
    gt.estimator("each")(means_of_one_group_each)
    problem, sizes = gt.gallery.problem("tabular"), {"batch_size": 2, "group_size": 4}
    (said,) = re.findall(r'The message says that it "(.+?)"\.', " ".join(read("estimators").split()))
    line = re.escape("`advantages[:, :] = batch.rewards - batch.rewards.mean(axis=1, keepdims=True)`")
    with pytest.raises(TypeError, match=f"does not compile: {said}, in {line}; a kernel is"):
        gt.gradient_mse(problem, problem.theta, "all", **sizes)
    own_mean = gt.gradient_mse(problem, problem.theta, "dr_grpo", **sizes)
    assert gt.gradient_mse(problem, problem.theta, "each", **sizes) == pytest.approx(own_mean, rel=1e-12)


def check_contributing(names):
    assert len(blocks(CONTRIBUTING)) == 3
    assert {"halfway_group", "halfway_clipped"} <= set(gt.estimators())
    shared, rng = names["problem"], np.random.default_rng(0)
    theta = rng.normal(size=3)
    twin = gt.Problem(shared.bandit, gt.LinearSoftmax(np.tile(np.eye(3), (2, 1, 1))))
    sizes = {"batch_size": 2, "group_size": 4}
    errors = [gt.gradient_mse(problem, theta, "halfway_group", **sizes) for problem in (shared, twin)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-12)
    tried = gt.coverage(names["hoeffding"], shared, names["truth"], experiment=gt.Pilot(16, 8), replications=1000, rng=0)
    assert tried.coverage >= 0.95


def test_a_wrong_number_in_a_comment_is_found():
    check_what_is_said("x, y, z  # 0.25, 3, True: a remark\n", {"x": 0.251, "y": 3, "z": True})
    check_what_is_said("x  # -0.25\n", {"x": -0.251})
    check_what_is_said("print(x)  # 0.25\n", {"x": 0.251})
    for wrong in ("x  # 0.26", "print(x)  # 0.26", "x, y  # 0.25, 4: a remark", "z  # False"):
        with pytest.raises(AssertionError):
            check_what_is_said(wrong, {"x": 0.251, "y": 3, "z": True})
    check_what_is_said("x  # 1 + sqrt(c3/c1)\ny  # (M,)\n", {})


@pytest.mark.parametrize(
    ("page", "mark"), [("estimators", "@gt.estimator"), ("coverage", "gt.coverage"), ("inequalities", "gt.worst_case")]
)
def test_what_is_said_to_take_ten_lines_does(page, mark):
    shown = next(block for block in blocks(read(page)) if mark in block).replace("import grpo_theory as gt\n", "")
    assert len([line for line in shown.splitlines() if line.strip()]) <= 10


def test_the_readme_is_short():
    assert len(README.split()) < 1300


def test_what_long_responses_change_is_what_the_verdicts_have():
    said = " ".join(read("long_responses").split())
    doubled = claims("length/larger groups")
    assert set(doubled.loc[doubled["problem"].str.startswith("copy"), "verdict"]) == {"refuted"}
    assert set(doubled.loc[~doubled["problem"].str.startswith("copy"), "verdict"]) == {"confirmed"}
    lost = claims("length/sixteen")
    few = lost["problem"].str.contains(r"\((?:rloo|dr_grpo)\)")
    assert f"they lose at most {lost.loc[few, 'estimate'].max():.0%} of the efficiency, from 16 to 4,096 tokens" in said
    divided = lost["problem"].str.contains(r"\((?:trl|verl)_grpo\)")
    assert f"up to {lost.loc[divided, 'estimate'].max():.0%} with TRL's and verl's division" in said
    assert f"and {lost['estimate'].max():.0%} with NeMo-RL's" in said
    walk, think = (claims("length/own length", kind)["estimate"] for kind in ("goal walk", "think until sure"))
    assert round(3.0 * walk.mean()) == 1, "a third"
    assert f"It costs {think.min():.0%} to {think.max():.0%} where the policy stops" in said
    correlated = claims("length/uncorrelated").query("verdict == 'refuted'")
    assert f"by {correlated['estimate'].min():.1f} to {correlated['estimate'].max():.1f} at 1,024 tokens in two of three" in said
    assert correlated["problem"].str.partition(",")[0].nunique() == 2


def test_what_ratios_do_to_long_responses_is_what_the_verdicts_have():
    said = " ".join(read("long_responses").split())
    whole, clip = (claims(f"length/{name}").set_index("problem") for name in ("whole ratio", "clip"))
    # The text's control has no power, which says nothing of the cosine itself.
    turned = VERDICTS[VERDICTS["id"] == "length/token direction"].set_index("problem")
    uncertain = [kind for kind in KINDS if kind != "copy"]
    cosine = np.floor(1000.0 * (1.0 - turned.loc[uncertain, "estimate"].max())) / 1000.0
    assert f"Their cosine is at least {cosine:.3f} in all ten directions" in said
    times = np.exp(whole.loc[uncertain, "estimate"])
    assert f"it is {times.min():.0f} to {times.max():.0f} times less efficient" in said
    assert f"the cosine falls to {1.0 - turned.loc['copy', 'estimate']:.2f}, and" in said
    assert whole.loc["copy", "verdict"] == "confirmed"
    assert ratios_by_length.DIRECTIONS == 10
    assert clip.loc["goal walk", "estimate"] == pytest.approx(0.0, abs=1e-3)
    assert (
        f"{clip.loc['think until sure', 'estimate']:.0%} of their efficiency in the worst direction of the task that stops"
        in said
    )
    assert clip.loc["bigram text", "estimate"] > 1.0, "the update points away from the gradient"


def test_what_whole_runs_say_is_what_the_verdicts_have():
    """And no sentence counts a setting that is undecided."""

    def counts(name, pattern=""):
        return claims(name, pattern)["verdict"].value_counts().to_dict()

    assert (counts("P1/sharpening"), counts("P1/coverage")) == ({"reproduced here": 1}, {"not reproduced here": 1})
    rows = [line.split("|")[2:10] for line in read("runs").split("| setting | 2,048 |")[1].split("\n\n")[0].splitlines()[2:]]
    leads = [float([cell for cell in row if cell.strip()][-1].strip(" *")) for row in rows]
    planned = VERDICTS[VERDICTS["id"] == "P1/64 over 8"]
    assert leads == pytest.approx((-100.0 * planned["estimate"]).tolist(), abs=0.051), "in the order of the study"
    assert (counts("P5", "shared"), counts("P5", "few")) == ({"not reproduced here": 1}, {"inconclusive": 1})
    assert counts("P7/stages") == {"reproduced here": 3, "not reproduced here": 1, "inconclusive": 3}
    assert counts("P7/wall time", "truncated") == {"confirmed": 4, "inconclusive": 3}
    assert set(counts("growth/law, against one size")) == {"inconclusive"}, "neither was ahead for certain"
    for name in ("undivided", "lent weights", "no interference", "rare answers"):
        assert set(counts(f"growth/{name}")) == {"confirmed"}
    for name in ("weights alone", "noise alone"):
        assert set(counts(f"growth/{name}")) == {"estimate only"}
    seen = claims("P3/whole runs, seen rates")
    assert seen["verdict"].value_counts().to_dict() == {"inconclusive": 7, "refuted": 1}
    assert counts("P3/whole runs", "shared") == {"inconclusive": 4}
    assert counts("allocation/stopped, whole runs", "shared") == {"refuted": 1, "inconclusive": 1}
    assert counts("allocation/halving, whole runs", "shared") == {"refuted": 1, "inconclusive": 1}
    for rule in ("stopped", "halving"):
        assert counts(f"allocation/{rule}, whole runs", "no interference") == {"inconclusive": 2}


def trainers():
    """Return the rows of the table of trainers: names, whether unbiased, of what, and their efficiency."""
    rows = [line.strip("|").split("|") for line in between(read("trainers"), "trainers").splitlines()[2:]]
    return [(re.findall(r"`(\w+)`", row[1]), *(cell.strip() for cell in row[2:5])) for row in rows]


ROWS = pytest.mark.parametrize(
    ("names", "unbiased", "what", "efficiency"), trainers(), ids=lambda value: "" if isinstance(value, list) else value
)


@ROWS
def test_the_table_of_trainers_is_true(names, unbiased, what, efficiency):
    """Of those that have an exact law: their mean update is the gradient, along it, or not along it, as the table says."""
    problem, sizes = gt.gallery.problem("mixed"), {"batch_size": 1, "group_size": 8}
    gradient = gt.moments(problem, problem.theta).gradient
    assert names
    for name in names:
        assert name in gt.estimators()
        if "groups are coupled" in what or name == "james_stein":
            continue
        mean = gt.gradient_mean(problem, problem.theta, name, **sizes)
        cosine = mean @ gradient / np.linalg.norm(mean) / np.linalg.norm(gradient)
        if what.startswith("mean reward"):
            assert cosine == pytest.approx(1.0, abs=1e-12), name
            assert np.allclose(mean, gradient, rtol=1e-10) == (unbiased == "yes"), name
            factor = (mean @ gradient) / (gradient @ gradient)
            assert "shorter by 1 - 1/G" not in what or factor == pytest.approx(1.0 - 1.0 / 8.0, rel=1e-10), name
        else:
            assert cosine < 0.999, name


@ROWS
def test_the_table_of_trainers_has_their_efficiencies(names, unbiased, what, efficiency):
    """Exact to the digits printed; simulated within these and 4.9 standard errors, where groups are coupled."""
    problem, sizes = gt.gallery.problem("lm-few-shot"), {"batch_size": 32, "group_size": 8}
    for name in names:
        if gt.estimators()[name].couples_groups:
            run = gt.simulate_gradients(problem, problem.theta, name, **sizes, replications=40_000, rng=3)
            assert abs(run.efficiency[0] - float(efficiency)) < 0.005 + 4.9 * run.efficiency_standard_error[0], name
        else:
            assert f"{gt.efficiency(problem, problem.theta, name, **sizes):.2f}" == efficiency, name


def test_the_table_of_aggregations_is_true(registry):
    lines = between(read("trainers"), "aggregations").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    kinds = {"a constant": "constant", "the response's own length": "own length", "the tokens of the group": "group tokens"}
    assert [row[0] for row in rows[2:]] == list(kinds)
    for row in rows[2:]:
        own = gt.compose(f"aggregated by {kinds[row[0]]}", advantage="rloo", aggregation=kinds[row[0]])
        for name, cell in zip(("sequence-shared", "lm-answers"), row[2:], strict=True):
            problem = gt.gallery.problem(name)
            law = gt.gradient_law(problem, problem.theta, own, batch_size=4, group_size=8)
            assert cell == f"{law.cosine:.4f}, {law.efficiency:.3f}"


def test_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert len(links) >= 15
    assert [link for link in links if not (TOP / link).exists()] == []


@pytest.fixture(scope="module")
def writer():
    """The script that brings the evidence into the repository."""
    spec = importlib.util.spec_from_file_location("write_evidence", TOP / "tools" / "write_evidence.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_verdicts_that_are_kept_are_of_the_catalogue():
    assert list(VERDICTS.columns) == COLUMNS
    assert set(VERDICTS["id"]) <= set(catalogue())


def test_verdicts_of_a_quick_run_or_of_some_studies_stay_out(writer, monkeypatch):
    origin = (pd.DataFrame(), 0, False, {}, ("lemma_14",))
    for found, message in (
        (Verdicts(*origin), "lack coverage, "),
        (Verdicts(*origin)._replace(quick=True), "are of a quick run"),
    ):
        monkeypatch.setattr(writer, "read_verdicts", lambda folder, known, found=found: found)
        with pytest.raises(SystemExit, match=message):
            writer.main(Path("results"))
