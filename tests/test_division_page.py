"""What docs/division.md says of the race is what the verdicts that are kept say."""

import re

import pandas as pd
import pytest
from pages import DOCS

PAGE = (DOCS / "division.md").read_text(encoding="utf-8")
VERDICTS = pd.read_csv(DOCS / "verdicts.csv", keep_default_na=False)
FULL = r"correlation 0\.2, easy, |correlation 0\.7, easy, Adam"
"""Where success without division is above 99%."""
FAMILIES = {"heads of SmolLM2": "lm-", "random features": "random", "four made-up prompts": "correlation"}


def between(mark):
    """Return what stands between the marks of a part of the page, on one line."""
    return " ".join(PAGE.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- end of {mark} -->")[0].split())


def gains(statement="division/pays"):
    """Return a row for each setting: the gain in points, the verdict, the group size and the optimiser."""
    rows = VERDICTS[VERDICTS["id"] == statement]
    sizes = rows["problem"].str.extract(r"G = (\d+)$")[0].astype(int)
    return rows.assign(gain=-100.0 * rows["estimate"].astype(float), size=sizes, adam=rows["problem"].str.contains("Adam"))


def answers():
    """Return the rows of the table of answers: situation, what dividing does, number of settings."""
    table = PAGE.partition("<!-- answers -->\n")[2].partition("<!-- end of answers -->")[0]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table.splitlines()[2:]]


def of(situation):
    """Return the settings of the race that a situation is about."""
    rows = gains()
    rows = rows[rows["adam"] == situation.startswith("Adam")]
    first, last = re.search(r"groups of (\d+)(?: (?:and|to) (\d+))?", situation).groups()
    rows = rows[(rows["size"] >= int(first)) & (rows["size"] <= int(last or first))]
    for words, name in FAMILIES.items():
        if situation.endswith(words):
            rows = rows[rows["problem"].str.startswith(name)]
    return rows


@pytest.mark.parametrize(("situation", "does", "count"), answers(), ids=lambda value: value if len(value) < 80 else "")
def test_an_answer_is_what_the_race_found(situation, does, count):
    rows = of(situation)
    assert len(rows) == int(count)
    low, high = (f"{value:.1f}".replace("-0.0", "0.0") for value in (rows["gain"].min(), rows["gain"].max()))
    assert does.startswith(f"{low} to {high} points")
    above = re.search(r"a point or more in (\d+) settings?", does)
    assert above is None or int(above[1]) == (rows["gain"] >= 1.0).sum()
    assert "more" not in does.partition(";")[0] or rows["gain"].min() >= 1.0


def test_every_setting_is_in_one_answer():
    found = pd.concat([of(situation) for situation, *_ in answers()])
    assert sorted(found["problem"]) == sorted(gains()["problem"])


def test_the_last_table_has_all_settings():
    rows = gains().set_index("problem")
    header, _, *lines = PAGE.partition("<!-- all -->\n")[2].partition("<!-- end of all -->")[0].splitlines()
    sizes, found = re.findall(r"G = \d+", header), {}
    for line in lines:
        problem, optimiser, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found |= {f"{problem}, {optimiser}, {size}": cell for size, cell in zip(sizes, cells, strict=True) if cell}
    assert set(found) == set(rows.index)
    for problem, cell in found.items():
        gain = f"{rows.loc[problem, 'gain']:.1f}".replace("-0.0", "0.0")
        certain = rows.loc[problem, "verdict"] == "confirmed"
        assert cell.split()[0] == (f"**{gain}**" if certain else gain), problem
