"""Which gradient each KL term estimates, as a table.

Each cell compares a KL term's exact contribution to the expected update with the gradient of KL(pi || pi_ref). The first number
is the distance between them, relative to that gradient's length. The number in brackets is the cosine of the angle between them.
Beside the term's name stands the divergence whose gradient it is by docs/derivations.md. There l_t = log(pi/pi_ref) of token t,
and pi_0 is the policy that sampled. A bar and s say that the prefixes are held fixed. In the reward the term is weighted by the
trajectory ratio, in the loss by none.
"""

import json

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.captions import signed
from grpo_theory.page.style import TRAINING
from paper_figures.content.panels import WORDS, Tables, heat_map

PLACE = 300
TABLES = ("kl_terms",)
DIVERGENCES = WORDS["kl_terms"]
"""By the statement of the mean, the divergence."""
WORST = 2.0
"""Where the colours end: the opposite of the gradient is as far from it."""


def _term(statement: str) -> str:
    """Return the term that a statement is about, and whose responses it sees."""
    if statement == "U17/printed mean":
        return "k3 in loss, as printed, on policy"
    term, _, off = statement.removeprefix("R5/").partition("/")
    return f"{term}, {off or 'on policy'}"


def draw(tables: Tables) -> Figure:
    """Draw a heat map: a row for each term on and off policy, a column for each problem."""
    table = tables["kl_terms"]
    shown = table[table["statement"].isin(DIVERGENCES)]
    facts = pd.DataFrame([json.loads(text) for text in shown["facts"]], index=[shown["statement"], shown["problem"]])
    distances, cosines = (facts[name].unstack(sort=False).loc[list(DIVERGENCES)] for name in facts)
    labels = [f"{_term(statement)}:  {text}" for statement, text in DIVERGENCES.items()]
    brackets = cosines.map(lambda cosine: f" ({signed(cosine)})")
    text = distances.map("{:.2f}".format) + brackets.where(distances.lt(1.0) | cosines.ne(0.0), "")
    figure, axes = plt.subplots(figsize=(9.6, 4.6))
    bar = {"label": "distance from the gradient of KL$(\\pi\\|\\pi_{ref})$"}
    heat_map(axes, distances, text, "cividis_r", (0.0, WORST), cbar_kws=bar)
    axes.set_yticklabels(labels, rotation=0)
    axes.set_xticklabels(
        [TRAINING.get(name, "tabular, 16 prompts").replace(", ", ",\n") for name in distances.columns], rotation=0
    )

    return figure
