"""What division by the standard deviation gains, over orthogonality and mean standard deviation.

Each cell shows the gain in mean success from division by the standard deviation, in percentage points, averaged over a training
run. Gradients are exact, without sampling error. Steps are constant and such that the first updates have the same length. Colours
have the same scale in all panels (blue: division is ahead, orange: it is behind). Left: SmolLM2's head, few-shot. A column has
one set of features, from the head's own coordinates to whitened ones, and a row has one policy. Right: made-up prompts, easy and
hard, whose features have the correlation given. Within a row only the features differ.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.captions import signed
from paper_figures.content.panels import Tables, heat_map

PLACE = 256
TABLES = ("gain_map",)
PANELS = {"lm-few-shot": "SmolLM2's head", "made up": "made-up prompts"}


def draw(tables: Tables) -> Figure:
    """Draw a heat map for the real and one for the made-up prompts."""
    table = tables["gain_map"].query("arm == 'divided'")
    figure, panels = plt.subplots(1, len(PANELS), figsize=(10.2, 3.9))
    most = 100.0 * float(table["estimate"].abs().max())
    for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
        part = table[table["prompts"] == name]
        columns = part.groupby("coordinates")["feature_cosine"].mean().sort_values(ascending=False)
        rows = part.groupby("start")[["success", "deviation"]].first().sort_index(ascending=False)
        gains = 100.0 * part.pivot_table(index="start", columns="coordinates", values="estimate").loc[rows.index, columns.index]
        text = gains.map(lambda gain: signed(gain, "+.1f"))
        heat_map(axes, gains, text, "#D55E00,#F7F7F7,#0072B2", (-most, most))
        axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{value:.2f}" for value in columns], rotation=0)
        labels = [f"{row.deviation:.2f} ({row.success:.2f})" for row in rows.itertuples()]
        axes.set_yticks(np.arange(len(rows)) + 0.5, labels, rotation=0)
        axes.set(title=title, xlabel="mean |cos| of features", ylabel="mean deviation (success) at the start")

    figure.colorbar(panels[-1].collections[0], ax=panels, label="gain in success (points)", fraction=0.04, pad=0.02)
    return figure
