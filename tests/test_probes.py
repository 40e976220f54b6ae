"""Probes of the verdict itself: false statements are refuted, noise confirms nothing, and a margin is a margin."""

import numpy as np
import pytest

from grpo_theory.evidence import decided, judge
from grpo_theory.harness.study import table_of
from grpo_theory.harness.study_file import read_study
from grpo_theory.page.wording import in_words

HEAD = '''"""A probe."""
import grpo_theory as gt
STATED = gt.Statement("probe/{kind}", "probe", "it holds", "{kind}", margin=gt.Margin(0.01, "because"))
def compare(settings, rng):
    p = gt.gallery.problem("tabular")
    run = lambda: gt.simulate_gradients(p, p.theta, "rloo", batch_size=1, group_size=8, replications=200, rng=rng, workers=1)
'''
SIDES = "first, second = run(), run()\n    error = sum(one.mse_standard_error[0] ** 2 for one in (first, second)) ** 0.5\n"
BOTH = "(first.mse[0] - second.mse[0], error, 200)"


def verdicts(tmp_path, kind, body):
    """Return the judged rows of a study that compares, from its file."""
    path = tmp_path / "probe.py"
    path.write_text(HEAD.replace("{kind}", kind) + "".join(f"    {line.strip()}\n" for line in body.splitlines()))
    study = read_study(path)
    (cell,) = study.cells(False)
    rows = study.rows(cell.settings, [study.compute(cell.settings, np.random.default_rng(3), 0)])
    return judge(list(study.claims(table_of(rows))))


def test_a_false_order_is_refuted_although_its_sides_exchanged_are_not(tmp_path):
    found = verdicts(
        tmp_path,
        "ordering",
        """a, b = (gt.gradient_mse(p, p.theta, one, batch_size=1, group_size=4) for one in ("reinforce", "oracle"))
        yield STATED.compare("tabular", a - b, 0.0, broken=b - a)""",
    )
    assert found[["verdict", "control", "sound"]].values.tolist() == [["refuted", "confirmed", ""]]
    assert in_words(found) == "Refuted in the one setting tried (tabular)."


def test_a_true_order_whose_control_is_not_refuted_is_not_confirmed(tmp_path):
    found = verdicts(tmp_path, "ordering", 'yield STATED.compare("a", -0.1, 0.0, broken=-0.2)')
    assert found["verdict"].tolist() == ["no power"]
    assert len(decided(found)) == 0


@pytest.mark.parametrize(("sound", "verdict"), [(0.9, "refuted"), (1.0, "refuted"), (1.2, "no power")])
def test_a_check_that_refutes_what_holds_refutes_nothing(tmp_path, sound, verdict):
    """The bound is exceeded by a half; a case in which it is attained must not be refuted by the same computation."""
    found = verdicts(tmp_path, "upper bound", f'yield STATED.compare("a", 1.5, 1.0, broken=2.0, sound={sound})')
    assert found["verdict"].tolist() == [verdict]
    assert len(decided(found)) == (verdict == "refuted")


def test_a_sound_case_is_judged_with_its_own_error(tmp_path):
    """An estimate above the bound by less than its error is no refutation, with the error's draws counted."""
    found = verdicts(tmp_path, "upper bound", 'yield STATED.compare("a", 1.5, 1.0, broken=2.0, sound=(1.2, 0.1, 1000))')
    assert found[["verdict", "sound"]].values.tolist() == [["refuted", "inconclusive"]]


@pytest.mark.parametrize("between", ["", 'yield {"estimate": first.mse[0]}\n'])
def test_noise_is_refused_where_it_has_no_error(tmp_path, between):
    with pytest.raises(ValueError, match=r"a simulation ran before this comparison, whose estimate has no error; give \(est"):
        verdicts(
            tmp_path, "ordering", SIDES + between + 'yield STATED.compare("a", first.mse[0] - second.mse[0], 0.0, broken=1.0)'
        )


def test_noise_with_its_error_confirms_nothing(tmp_path):
    found = verdicts(tmp_path, "ordering", SIDES + f'yield STATED.compare("a", {BOTH}, 0.0, broken=(1.0, error, 200))')
    assert found[["verdict", "control", "replications"]].values.tolist() == [["inconclusive", "refuted", 200]]
    assert found["high"][0] > 0.0 > found["low"][0]


def test_what_holds_path_by_path_needs_no_error(tmp_path):
    same = "seed = int(rng.integers(2**62))\nrng = seed\nfirst = run()\nrng = seed\nsecond = run()\n"
    body = same + 'yield STATED.compare("a", first.mse[0] - second.mse[0], 0.0, broken=1.0)'
    assert verdicts(tmp_path, "identity", body)["verdict"].tolist() == ["confirmed"]


def test_what_is_compared_before_anything_is_simulated_is_exact(tmp_path):
    body = 'yield STATED.compare("b", -0.1, 0.0, broken=0.1)\n' + SIDES + f'yield STATED.compare("a", {BOTH}, 0.0, broken=1.0)'
    assert verdicts(tmp_path, "ordering", body)["verdict"].tolist() == ["confirmed", "inconclusive"]


@pytest.mark.parametrize(("estimate", "verdict"), [(1.001, "confirmed"), (1.009, "confirmed"), (1.02, "refuted")])
def test_an_exact_equality_is_judged_by_its_margin(tmp_path, estimate, verdict):
    found = verdicts(tmp_path, "equality", f'yield STATED.compare("a", {estimate}, 1.0, broken=2.0)')
    assert found["verdict"].tolist() == [verdict]


def test_an_exact_law_is_judged_by_its_margin(tmp_path):
    found = verdicts(tmp_path, "law", 'yield STATED.compare("a", 1e-15, 0.0, broken=0.5)')
    assert found[["verdict", "control"]].values.tolist() == [["confirmed", "refuted"]]
