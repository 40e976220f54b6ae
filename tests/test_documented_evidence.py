"""The evidence in the documentation: every planned quantity has its function, and the reference says what was measured of it."""

import grpo_theory as gt
from docs.making.evidence import COVERAGE, VERDICTS, measured
from simulations.claims.planner import TEXTS
from tools.write_evidence import PLANNED


def test_every_quantity_of_a_plan_has_its_function():
    assert set(PLANNED) == set(TEXTS)
    assert set(PLANNED.values()) <= set(dir(gt.plan))


def test_the_reference_says_how_often_plans_hold():
    for quantity, function in PLANNED.items():
        lines = [line for line in measured(function) if TEXTS[quantity] in line]
        points = VERDICTS[VERDICTS["id"] == f"plan/{quantity}"]
        designs = COVERAGE[(COVERAGE["interval"] == function) & (COVERAGE["target"] == quantity)]
        assert len(lines) == len(points) + len(designs) > 0
        for row in points.itertuples():
            assert any(f"{1.0 - row.estimate:.1%} ({row.problem})" in line for line in lines)


def test_a_function_of_which_nothing_was_measured_has_no_lines():
    assert measured("group_size_law") == []
