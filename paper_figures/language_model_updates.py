"""SmolLM2 after 1 to 16 updates on one rollout: how far it has moved, and what every ratio then estimates."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from grpo_theory.page.style import BROWN, LANGUAGE_MODEL, PROBLEMS, RATIOS, Look, log_axis
from simulations.sequence.language_model import BATCH_SIZE, GROUP_SIZE, WIDTH

PLACE = 230
ABOUT = "T6"
TABLES = ("language_model",)
LEAST = 1e-6
"""Biases below are those of rounding."""
CAPTION = (
    "SmolLM2's head is moved by updates on one rollout. Each update is the exact mean of the clipped update (token "
    f"ratios, G = {GROUP_SIZE}). The upper row shows how far the policy has moved, the effective sample size, and the "
    "share of tokens clipped. The effective sample size is the share 1/E rho^2 of the old responses, when they are used "
    "as a sample of the new policy. A token is clipped if the clip by sign drops its gradient. The lower row is for "
    "answers of several tokens. It shows the bias about the current gradient, relative to that gradient, and the cosine "
    f"of mean update and current gradient. Its last panel shows the root mean squared error of a batch (B = {BATCH_SIZE}), "
    f"relative to the gradient. Biases below {LEAST:g} are not drawn. Ratios are clipped at {1.0 - WIDTH:g} and "
    f"{1.0 + WIDTH:g}. All values are exact."
)
MODELS = {
    **{name: PROBLEMS[name] for name in LANGUAGE_MODEL},
    "lm-answers": Look("SmolLM2, up to three tokens", BROWN, "^", "--"),
}
POLICIES = {
    "nats": "nats per response moved",
    "effective sample share": "effective sample size",
    "tokens clipped": "tokens clipped",
}
QUANTITIES = {"to current": "bias / gradient", "cosine": "cosine with gradient", "error": "error / gradient"}


def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
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
            axes.set_title(title)
            axes.set_xlabel("updates on one rollout")
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator((1, 2, 4, 8, 16)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_locator(NullLocator())
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
    axes.plot(x, y, look.line, color=look.colour, marker=look.marker, markerfacecolor="white", label=look.label)
