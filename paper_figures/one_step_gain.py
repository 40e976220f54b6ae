"""What one exact step gains, against its guarantee.

The upper row shows what one exact gradient step on a prompt gains in success, against the printed guarantee. The problems are
random and log-linear, with {answers} answers. The steps are those printed in Theorems 3.1 and 3.2. Solid lines are the printed
guarantee. Dashed lines are the guarantee at the same step, with a curvature bound that is attained. The lower row divides the
gain by the printed guarantee.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.captions import listed
from grpo_theory.page.style import BLACK, BLUE, VERMILION, Look
from grpo_theory.theory import divided_gain_constant
from paper_figures.content.panels import Tables

PLACE = 240
TABLES = ("one_step",)
PANELS = {
    "N5/gain": Look("plain step, $1/X^2$", BLUE, "D", "--"),
    "N6/gain": Look(r"divided step, $1/(2X^2\sqrt{V})$", VERMILION, "X", "--"),
}
PRINTED = {"N5/gain": 0.5, "N6/gain": 3.0 / 16.0}
LEAST = 1e-9


def settings(tables: Tables) -> dict[str, object]:
    """Return what the caption says of these tables."""
    return {"answers": listed(sorted(_points(tables)["answers"].unique()))}


def draw(tables: Tables) -> Figure:
    """Draw the gains of both updates, and below them the same over the guarantee."""
    table = _points(tables)
    figure, panels = plt.subplots(2, 2, figsize=(7.2, 5.6), sharex=True, sharey="row", height_ratios=(2.0, 1.0))
    for (name, look), column in zip(PANELS.items(), panels.T, strict=True):
        part = table[(table["guarantee"] == name) & (table["prediction"] > LEAST)]
        guarantee, gain = part["prediction"].to_numpy(), part["estimate"].to_numpy()
        ends = np.array([LEAST, 1.0])
        sharp = sharper_constant(name) / PRINTED[name]
        style = {"color": look.colour, "markersize": 3.5, "markerfacecolor": "white", "markeredgewidth": 0.8, "alpha": 0.75}
        column[0].loglog(guarantee, gain, look.marker, linestyle="none", **style)
        column[0].loglog(ends, ends, "-", color=BLACK, label="printed guarantee")
        column[0].loglog(ends, sharp * ends, "--", color=BLACK, label=f"sharper guarantee, {sharp:.2f} times")
        column[1].semilogx(guarantee, gain / guarantee, look.marker, linestyle="none", **style)
        column[1].axhline(1.0, color=BLACK)
        column[1].axhline(sharp, color=BLACK, linestyle="--")
        column[0].set_title(look.label)
        column[0].legend(loc="lower right")
        column[0].set(xlim=(LEAST, 1.0), ylim=(LEAST, 1.0))
        column[1].set_xlabel("printed guarantee")
    panels[1, 0].set_ylim(0.8, 3.2)
    panels[0, 0].set_ylabel("gain of success")
    panels[1, 0].set_ylabel("gain / guarantee")
    return figure


def _points(tables: Tables) -> pd.DataFrame:
    """Return the rows that are drawn, one for each update and random problem."""
    return tables["one_step"].query("how == 'point' and guarantee in @PANELS.keys()")


def sharper_constant(name: str) -> float:
    """Return the constant of the sharper guarantee at the printed step."""
    return 1.0 - 0.5 / (3.0 * np.sqrt(3.0)) if name == "N5/gain" else divided_gain_constant(0.5)
