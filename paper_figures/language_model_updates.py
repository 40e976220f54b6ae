"""SmolLM2 after 1 to 16 updates on one rollout: how far it has moved, and what every ratio then estimates.

SmolLM2's head is moved by updates on one rollout. Each update is the exact mean of the clipped update (token ratios, G =
{GROUP_SIZE}). The upper row shows how far the policy has moved, the effective sample size, and the share of tokens clipped. The
effective sample size is the share 1/E rho^2 of the old responses, when they are used as a sample of the new policy. A token is
clipped if the clip by sign drops its gradient. The lower row is for answers of several tokens. It shows the bias about the
current gradient, relative to that gradient, and the cosine of mean update and current gradient. Its last panel shows the root
mean squared error of a batch (B = {BATCH_SIZE}), relative to the gradient. Biases below {LEAST:g} are not drawn. Ratios are
clipped at {CLIP[0]:g} and {CLIP[1]:g}. All values are exact.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from grpo_theory.page.style import BROWN, LANGUAGE_MODEL, PROBLEMS, RATIOS, Look
from paper_figures.content.panels import WORDS, Tables, curve, log_axis, ticks
from simulations.sequence.language_model import BATCH_SIZE, GROUP_SIZE, WIDTH  # noqa: F401, for the caption

PLACE = 230
ABOUT = "T6"
TABLES = ("language_model",)
CLIP = 1.0 - WIDTH, 1.0 + WIDTH
LEAST = 1e-6
"""Biases below are those of rounding."""
MODELS = {
    **{name: PROBLEMS[name] for name in LANGUAGE_MODEL},
    "lm-answers": Look("SmolLM2, up to three tokens", BROWN, "^", "--"),
}
POLICIES = WORDS["language_model_updates"]
QUANTITIES = {"to current": "bias / gradient", "cosine": "cosine with gradient", "error": "error / gradient"}


def draw(tables: Tables) -> Figure:
    """Draw the policies above, the estimators below."""
    table = tables["language_model"]
    figure, (above, below) = plt.subplots(2, 3, figsize=(10.0, 6.6))
    policies = table[table["estimator"] == "policy"]
    for problem in (name for name in MODELS if (policies["problem"] == name).any()):
        part, look = policies[policies["problem"] == problem], MODELS[problem]
        for axes, quantity in zip(above, POLICIES, strict=True):
            _line(axes, part[part["quantity"] == quantity], look)
    updates = table[table["problem"] == "lm-answers"]
    for name, look in RATIOS.items():
        part = updates[updates["estimator"] == name]
        for axes, quantity in zip(below, QUANTITIES, strict=True):
            shown = part[part["quantity"] == quantity]
            if quantity == "to current":
                shown = shown[shown["estimate"] > LEAST]
            _line(axes, shown.assign(estimate=np.sqrt(shown["estimate"])) if quantity == "error" else shown, look)
    for row, titles in ((above, POLICIES), (below, QUANTITIES)):
        for axes, title in zip(row, titles.values(), strict=True):
            axes.set(title=title, xlabel="updates on one rollout", xscale="log")
            ticks(axes.xaxis, (1, 2, 4, 8, 16))
    log_axis(above[0])
    for axes in above[1:]:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100.0 * share:g}%"))
    log_axis(below[0])
    figure.legend(*above[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(MODELS))
    figure.legend(*below[1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _line(axes: Axes, rows: pd.DataFrame, look: Look) -> None:
    """Draw the estimates of one policy or estimator against the number of updates."""
    x, y = rows.sort_values("updates")[["updates", "estimate"]].to_numpy().T
    curve(axes, x, y, look)
