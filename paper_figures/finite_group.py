"""Which objective groups of finite size climb, with binary rewards."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from grpo_theory.page.style import BLACK, BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Look

PLACE = 65
TABLES = ("finite_group",)
GROUP_SIZE = 8
SIZES = {2: SKY, 4: BLUE, 8: BLACK, 64: PURPLE}
LOOKS = {
    "trl_grpo": Look("TRL, verl, OpenRLHF: sd, own in, ddof 1", BLACK, "", "-"),
    "rllm": Look("rLLM: sd, own in, ddof 0", BLUE, "", "-"),
    "nemo_rl": Look("NeMo-RL: sd, own out", VERMILION, "", "-"),
    "max_rl": Look("MaxRL: by the mean", GREEN, "", "-"),
    "verl_grpo_passk": Look("verl pass@k: best less second", ORANGE, "", "-"),
    "trl_rloo": Look("mean of the others", BROWN, "", "--"),
    "trl_grpo_none": Look("own mean", GREY, "", "--"),
}
CAPTION = (
    "The mean update of a prompt with success probability p is h'(p) grad p. Left: h' of TRL's GRPO at several group sizes, "
    f"and its limit as groups grow (dotted). Middle: h' of trainers' conventions at G = {GROUP_SIZE}. Right: the objective h "
    f"at G = {GROUP_SIZE}, divided by its greatest value. Dashed lines are conventions that do not divide by the deviation. "
    "All lines are exact, from the kernels' tables."
)


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw three panels."""
    table = tables["finite_group"]
    curves = table[table["kind"] == "curve"]
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.9))
    growing = curves[curves["convention"] == "trl_grpo"]
    for size, colour in SIZES.items():
        part = growing[growing["group_size"] == size]
        panels[0].plot(part["p"], part["estimate"], "-", color=colour, label=f"G = {size}")
    p = np.sort(growing["p"].unique())
    panels[0].plot(p, 1.0 / np.sqrt(p * (1.0 - p)), ":", color=GREY, label=r"$1/\sqrt{p(1-p)}$")
    panels[0].legend()
    for name, look in LOOKS.items():
        part = curves[(curves["convention"] == name) & (curves["group_size"] == GROUP_SIZE)].sort_values("p")
        panels[1].plot(part["p"], part["estimate"], look.line, color=look.colour, label=look.label)
        total = part["value"].iloc[-1]
        panels[2].plot(part["p"], part["value"] / total, look.line, color=look.colour)
    for axes, title in zip(
        panels, ("GRPO: $h'(p)$", f"$h'(p)$ at G = {GROUP_SIZE}", f"$h(p)$, scaled, at G = {GROUP_SIZE}"), strict=True
    ):
        axes.set_xlabel("success probability $p$")
        axes.set_title(title)
    panels[0].set_ylim(0.0, 8.5)
    panels[1].set_ylim(0.0, None)
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
