"""A check is one function of a case: what its rows and verdicts are, and what is computed again when it is edited."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_tables import computed as table_of_chunks

import grpo_theory as gt
from grpo_theory.evidence import Evidence, Share, decided, judge
from grpo_theory.evidence.reading import two_sides
from grpo_theory.harness.study import chunk_generator, joined
from grpo_theory.harness.study_file import read_study

KINDS = ("identity", "equality", "rate", "upper bound", "ordering")


def stated(kind):
    return gt.Statement("X", "test", "it holds", kind, margin=gt.Margin(0.1, "test"))


def computed(path, quick=False):
    """Return the table of a study from its file, every chunk with the generator of its own."""
    study = read_study(path)
    return study, table_of_chunks(study, quick, lambda number, cell, chunk: chunk_generator(study.name, cell, 0, chunk))


HEAD = '''"""A probe."""
import numpy as np
import grpo_theory as gt
from grpo_theory.evidence.reading import mean_of
from grpo_theory import harness
X, Y = (gt.Statement(name, "test", "it holds", "{kind}", margin=gt.Margin(0.1, "test")) for name in "XY")
'''


@pytest.fixture
def verdicts(tmp_path, monkeypatch):
    def judged(body, kind="equality", quick=False):
        path = tmp_path / "probe.py"
        path.write_text(HEAD.replace("{kind}", kind) + body)
        study, table = computed(path, quick)
        return judge(study.claims(table)), table

    return judged


@given(st.sampled_from(KINDS), st.lists(st.tuples(*[st.floats(-5.0, 5.0)] * 2), min_size=2, max_size=5))
def test_of_arrays_the_place_counts_at_which_the_verdict_is_worst(kind, pairs):
    """Alone, no other place is refuted unless that one is: the array's verdict is that of all places together."""
    left, right = np.array(pairs).T
    worst, _ = two_sides(stated(kind), (left, right))
    alone = [two_sides(stated(kind), (one, other))[0] for one, other in pairs]
    assert worst in alone

    def holds(evidence):
        return judge([stated(kind).claim("a", evidence, Evidence(9.0, 1.0))])["verdict"][0] in ("confirmed", "no power")

    assert holds(worst) == all(map(holds, alone))


def test_two_simulated_sides_have_the_error_of_their_difference():
    found, facts = two_sides(stated("ordering"), [(1.0, 0.3, 50), (1.2, 0.4, 40), {"n": 3}])
    assert (found.estimate, found.prediction, found.standard_error, found.replications) == (1.0, 1.2, 0.5, 40)
    assert facts == {"n": 3}
    found, _ = two_sides(stated("upper bound"), (([1.0, 2.0, 1.5], 0.1, 50), 2.5))
    assert (found.estimate, found.comparisons) == (2.0, 3)


def test_what_are_no_two_sides_is_refused(check_refused):
    for sides in (1.0, (1.0, 2.0, 3.0), ((1.0, 0.1), 2.0), (np.nan, 1.0), ("a", 1.0)):
        check_refused((lambda sides=sides: two_sides(stated("equality"), sides), "side|returns"), error=(TypeError, ValueError))


def test_the_same_function_runs_on_the_right_the_broken_and_the_sound_case_with_the_same_draws(verdicts):
    found, table = verdicts("""
@gt.check(X, cases=[{"n": 3}, {"n": 4}], broken={"factor": 2.0}, sound={"factor": 1.0}, setting="n = {n}")
def scaled(n, rng, factor=1.5):
    x = rng.normal(size=n).sum()
    return factor * x, x
""")
    judged = [[f"n = {n}", "refuted", "refuted", "confirmed"] for n in (3, 4)]
    assert found[["problem", "verdict", "control", "sound"]].values.tolist() == judged
    assert table["n"].tolist() == [3, 4]
    np.testing.assert_allclose(table["broken"] / table["estimate"], 2.0 / 1.5)


RUN = """
@harness.run(runs=100)
def drawn(runs, rng, scale=1.0):
    return {"x": scale * rng.normal(size=runs) ** 2, "chunks": [1]}
@gt.check(X, Y, of=drawn, cases=lambda quick: [{"runs": 200 if quick else 1000}], broken=[{"scale": 1.5}, {"power": 2}])
def mean(found, runs, power=1):
    assert len(found["x"]) == runs == 100 * len(found["chunks"])
    return {"X": (mean_of(found["x"]), 1.0)} | ({"Y": (mean_of(found["x"] ** power), 1.0)} if runs == 1000 else {})
@gt.check(Y, of=drawn, cases=lambda quick: [{"runs": 200 if quick else 1000}], each={"scale": (1.0, 2.0)}, broken={"scaled": 2.0})
def ratio(found, scaled=1.0):
    return mean_of(found[2.0]["x"] / scaled), mean_of(2.0 * found[1.0]["x"])
@harness.rows(of=drawn, cases=lambda quick: [{"runs": 200 if quick else 1000}])
def quantiles(found):
    yield {"level": 0.5, "estimate": np.quantile(found["x"], 0.5)}
"""


def test_a_run_is_computed_once_for_all_that_read_it(verdicts, tmp_path):
    found, table = verdicts(RUN)
    study = read_study(tmp_path / "probe.py")
    scaled = ({}, {"scale": 1.5}, {"scale": 1.0}, {"scale": 2.0})
    assert [(one.settings, one.chunks) for one in study.cells(False)] == [
        ({"of": "drawn", "runs": 100} | own, 10) for own in scaled
    ]
    assert found["id"].tolist() == ["X", "Y", "Y"]
    assert found["replications"].tolist() == [1000, 1000, 1000]
    assert found["prediction"][2] == pytest.approx(2.0, abs=0.5)
    assert found["control_estimate"][2] == pytest.approx(found["estimate"][2] / 2.0)
    assert table["statement"].tolist() == ["X", "Y", "Y", ""]
    assert verdicts(RUN, quick=True)[0]["id"].tolist() == ["X", "Y"], "a statement may not apply in a case"


SIMULATING = """
def errors(rng):
    p = gt.gallery.problem("tabular")
    return gt.simulate_gradients(p, p.theta, "rloo", batch_size=1, group_size=8, replications=200, rng=rng, workers=1)
@gt.check(X, cases=[{}], broken={"more": 1.0})
def order(rng, more=0.0):
    one, other = errors(rng), errors(rng)
    error = np.hypot(one.mse_standard_error[0], other.mse_standard_error[0])
    return SIDES, 0.0
"""


def test_noise_is_refused_and_with_its_error_confirms_nothing(verdicts):
    """That the leave-one-out estimator has a smaller error than itself."""
    with pytest.raises(ValueError, match=r"X on all: a simulation ran for this side, which has no error: give \(estimate"):
        verdicts(SIMULATING.replace("SIDES", "one.mse[0] - other.mse[0] + more"), "ordering")
    found, _ = verdicts(SIMULATING.replace("SIDES", "(one.mse[0] - other.mse[0] + more, error, 200)"), "ordering")
    assert found[["verdict", "control"]].values.tolist() == [["inconclusive", "refuted"]]
    found, _ = verdicts(SIMULATING.replace("SIDES", "one.mse[0] - one.mse[0] + more"), "identity")
    assert found["verdict"].tolist() == ["confirmed"], "what holds path by path needs no error"


def test_evidence_comes_back_with_the_limits_that_it_had(verdicts):
    found, _ = verdicts("""
from grpo_theory.evidence import Share
@gt.check(X, cases=[{"hits": 0.5}], broken={"hits": 0.9})
def share(hits):
    return Share(hits, 0.5, replications=4000, comparisons=3), {"asked": np.int64(3)}
""")
    low, high = Share(0.5, 0.5, replications=4000).interval(1e-4 / 3)
    assert (found["low"][0], found["high"][0], found["facts"][0]) == (low, high, "asked = 3")


def test_mistakes_are_told(verdicts, check_refused):
    head, broken = "@gt.check(X{})\ndef f(n=1):\n    return ", ", broken={'n': 2}"
    for body, message in (
        (head.format(", cases=[{}], broken={'other': 1}") + "1.0, 1.0\n", r"f\(\) takes no other"),
        (head.format("") + "1.0, 1.0\n", "no broken case gave its sides"),
        (head.format(broken) + "{'Z': (1.0, 1.0)}\n", "returns sides of 'Z', which it does not"),
        (head.format(broken) + "n, np.inf\n", "X: sides must be finite"),
        (head.format(broken) + "n, 1.0\ndef claims(t):\n    return []\n", "probe defines f, claims"),
    ):
        check_refused((lambda body=body: verdicts(body), message))


def test_results_of_chunks_are_put_end_to_end():
    found = joined([{"a": [1.0, 2.0], "b": {"c": [[1, 2]]}, "n": 3}, {"a": [3.0], "b": {"c": [[3, 4]]}, "n": 4}])
    assert [found["a"].tolist(), found["b"]["c"].tolist(), found["n"].tolist()] == [[1.0, 2.0, 3.0], [[1, 2], [3, 4]], [3, 4]]


@pytest.mark.parametrize(
    ("kind", "body", "verdict"),
    [
        ("ordering", "-0.1, 0.0, broken=-0.2", "no power"),
        # The bound is exceeded by a half; a case in which it is attained must not be refuted by the same computation.
        ("upper bound", "1.5, 1.0, broken=2.0, sound=1.0", "refuted"),
        ("upper bound", "1.5, 1.0, broken=2.0, sound=1.2", "no power"),
        # Above the bound by less than its error, with the error's draws counted.
        ("upper bound", "1.5, 1.0, broken=2.0, sound=(1.2, 0.1, 1000)", "refuted"),
    ],
)
def test_a_file_that_compares(verdicts, kind, body, verdict):
    found, _ = verdicts(f"def compare(settings, rng):\n    yield X.compare('a', {body})\n", kind)
    assert found["verdict"].tolist() == [verdict]
    assert len(decided(found)) == (verdict != "no power")
