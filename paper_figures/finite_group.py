"""Which objective groups of finite size climb, with binary rewards.

The mean update of a prompt with success probability p is h'(p) grad p. Left: h' of TRL's GRPO at several group sizes, and its
limit as groups grow (dotted). Middle: h' of trainers' conventions at G = {GROUP_SIZE}. Right: the objective h at G =
{GROUP_SIZE}, divided by its greatest value. Dashed lines are conventions that do not divide. All lines are exact and come from
the kernels' tables.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, BROWN, GREEN, GREY, PURPLE, SKY, VERMILION, Look
from paper_figures.content.panels import Tables, size_colours

PLACE = 65
TABLES = ("finite_group",)
GROUP_SIZE = 8
SIZES = {2: "-", 4: (0, (6, 1.5, 1, 1.5, 1, 1.5)), 8: "--", 64: "-."}
"""The dashes of each group size."""
LONG, SHORT = (0, (7, 2)), (0, (2.5, 1.2))
"""Dashes of the two conventions that do not divide."""
LOOKS = {
    "rllm": Look("rLLM: standard deviation (ddof 0)", PURPLE, "", "-"),
    "trl_grpo": Look("TRL, verl, OpenRLHF: standard deviation (ddof 1)", VERMILION, "", "-"),
    "nemo_rl": Look("NeMo-RL: deviation of the other responses", BROWN, "", "-."),
    "max_rl": Look("MaxRL: divided by the group's mean", SKY, "", "-"),
    "verl_grpo_passk": Look("verl, pass@k: best less second best", GREEN, "", ":"),
    "trl_rloo": Look("RLOO: mean of the other responses", BLUE, "", "--"),
    "trl_grpo_none": Look("Dr. GRPO: mean of the group", GREY, "", "--"),
}
DASHES = {"trl_rloo": LONG, "trl_grpo_none": SHORT}
WIDE = {"rllm": 4.5}
"""Lines on which another lies are wide, so that both are seen."""


def draw(tables: Tables) -> Figure:
    """Draw three panels."""
    table = tables["finite_group"]
    curves = table[table["kind"] == "curve"]
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 4.3))
    growing = curves[curves["convention"] == "trl_grpo"]
    for size, colour in size_colours(tuple(SIZES)).items():
        part = growing[growing["group_size"] == size]
        panels[0].plot(part["p"], part["estimate"], linestyle=SIZES[size], color=colour, label=f"$G$ = {size}")
    p = np.sort(growing["p"].unique())
    panels[0].plot(p, 1.0 / np.sqrt(p * (1.0 - p)), ":", color=BLACK, label=r"limit, $1/\sqrt{p(1-p)}$")
    panels[0].legend(loc="upper center", fontsize="small")
    for name, look in LOOKS.items():
        part = curves[(curves["convention"] == name) & (curves["group_size"] == GROUP_SIZE)].sort_values("p")
        style: dict[str, Any] = {"linewidth": WIDE.get(name), "alpha": 0.5 if name in WIDE else 1.0}
        style |= {"color": look.colour, "linestyle": DASHES.get(name, look.line)}
        panels[1].plot(part["p"], part["estimate"], label=look.label, **style)
        total = part["value"].iloc[-1]
        panels[2].plot(part["p"], part["value"] / total, **style)
    titles = ("GRPO by group size", f"conventions at $G$ = {GROUP_SIZE}", f"their objectives at $G$ = {GROUP_SIZE}")
    labels = ("weight of a prompt, $h'(p)$", "weight of a prompt, $h'(p)$", "objective $h(p)$ / its greatest value")
    for axes, title, label in zip(panels, titles, labels, strict=True):
        axes.set(xlabel="success probability $p$", ylabel=label, title=title)
    panels[0].set_ylim(0.0, 8.5)
    panels[1].set_ylim(0.0, None)
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
