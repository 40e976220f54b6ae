"""The words and numbers of an advice."""

import pytest

from grpo_theory.plan.section import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999.6, "1,000"),
        (-999.6, "-1,000"),
        (999.4, "999"),
        (1e-5, "0.00001"),
        (1.234e-4, "0.000123"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (2.0, "2"),
        (12.34, "12.3"),
        (1234567.8, "1,234,568"),
        (3.21e-12, "3.21e-12"),
        (1e16, "1e+16"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, text):
    assert number(value) == text
