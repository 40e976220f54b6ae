"""Which estimator for which question.

Rows are estimators and columns are questions, on sequences with shared features (B = {batches}, G = {groups}). Values are exact,
or simulated where groups depend on each other. Direction is the cosine of the angle between mean update and gradient. The next
columns show the direction for responses that were drawn a few small or large steps along the gradient earlier. Efficiency is what
one step of the best length gains, relative to the oracle with the value baseline. A factor on the estimator leaves the efficiency
as it is. In a uniform group all rewards are equal. The largest advantage in such a group is shown, and a push there is without
information. Colours go from good (light) to bad (dark). The directions and the efficiency have one scale.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed, signed
from paper_figures.content.panels import WORDS, Tables, heat_map

PLACE = 5
ABOUT = "estimator"
TABLES = ("questions",)
HEADS = WORDS["questions"]
BAD = {
    "cosine": (1.0, 0.5),
    "efficiency": (1.0, 0.5),
    "uniform": (0.0, 1.0),
    "after small steps": (1.0, 0.5),
    "after large steps": (1.0, 0.5),
}
"""Where each column's colours begin and end."""


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    batches, groups = (listed(sorted(tables["questions"][name].unique())) for name in ("batch_size", "group_size"))
    return {"batches": batches, "groups": groups}


def draw(tables: Tables) -> Figure:
    """Draw a heat map: a row for each estimator, a column for each question."""
    table = tables["questions"].pivot_table(index="estimator", columns="quantity", values="estimate", sort=False, dropna=False)
    table = table[list(HEADS)]
    ends = np.array([BAD[name] for name in table]).T
    badness = ((table - ends[0]) / (ends[1] - ends[0])).clip(0.0, 1.0)
    text = table.map(lambda value: "knows $V(x)$" if np.isnan(value) else signed(value))
    figure, axes = plt.subplots(figsize=(8.6, 7.0))
    heat_map(axes, badness.fillna(0.0), text, "#F4F7FA,#D55E00", (0.0, 1.0))
    axes.set_xticks(np.arange(len(HEADS)) + 0.5, list(HEADS.values()), rotation=0)
    axes.set_yticks(np.arange(len(table)) + 0.5, list(table.index), rotation=0, family="monospace")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    return figure
