"""An advice as files: JSON, as its records hold it, and one page of HTML, which needs nothing else.

What draws is imported for the page alone.
"""

import io
import json
from typing import Any

from grpo_theory.page.advice.screen import answer, to_text
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.run_advice import RunAdvice
from grpo_theory.user_text import json_value

FORMAT = 6
"""Raised when a key changes its meaning or goes."""
OF_CHOICE = ("group_size", "batch_size", "low", "high", "bounded", "risk", "group_sizes", "batch_sizes", "loss", "candidates")
OF_SCORES = ("baseline", "rival", "real_optimum", "signal", "prompts", "others", "refusal")
"""What is told of the choice for a step, and of what else scores tell."""


def to_json(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as JSON; the keys are those of `to_dict`.

    Examples
    --------
    >>> import json, grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> text = gt.page.to_json(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> json.loads(text)["format"]
    6
    """
    return json.dumps(to_dict(advice, run), indent=2, allow_nan=False) + "\n"


def to_dict(advice: Advice, run: RunAdvice | None = None) -> dict[str, Any]:
    """Convert an advice to a dictionary; unknown or infinite values, and those not asked for, are None.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> advice = gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024)
    >>> gt.page.to_dict(advice)["rewards"]["prompts"]
    129
    """
    scores, rewards = advice.scores, advice.rewards
    step = None
    if scores is not None:
        step = {name: getattr(scores.choice, name) for name in OF_CHOICE} | {name: getattr(scores, name) for name in OF_SCORES}
        step |= {"prompts_needed": scores.choice.prompts_needed(advice.tolerance), "enough": advice.enough}
        step |= {"dropped": rewards.sample.prompts - scores.prompts, "heavy_tailed": advice.heavy_tailed}
    mean = {"mean": rewards.sample.mean_reward, "smallest_group": rewards.group_sizes[0], "largest_group": rewards.group_sizes[1]}
    return {
        "format": FORMAT,
        "recommendation": json_value(answer(advice, run)),
        **{
            name: json_value(getattr(advice, name))
            for name in ("group_size", "estimator", "baseline", "level", "tolerance", "limits")
        },
        "step": json_value(step),
        "missing": advice.missing or None,
        "run": json_value(run),
        "rewards": json_value(rewards) | json_value(rewards.sample) | json_value(mean),
        "notes": [*advice.reading, *advice.notes],
    }


def to_html(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as one page of HTML with all of the text, and the curve of what group sizes lose where it is known.

    `run` is what `gt.plan.advise_run` returns, if it was asked.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> page = gt.page.to_html(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> page.startswith("<!doctype html>")
    True
    """
    from markupsafe import Markup
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    from grpo_theory.page.document import Page
    from grpo_theory.page.picture import draw_losses, picture

    page = Page("grpo-theory plan")
    screen, _, rest = to_text(advice, run, everything=True).partition("\n\n\n")
    page.section("The advice", "advice")
    page.add("code", text=screen)
    if advice.scores is not None:
        figure, drawn = Figure(figsize=(5.6, 3.9), layout="constrained"), io.StringIO()
        draw_losses(figure.add_subplot(), advice)
        figure.legend(loc="outside upper left", ncols=2)
        FigureCanvasSVG(figure).print_svg(drawn, metadata={"Date": None})
        caption = "What each group size loses in one step, with limits."
        page.add("figure", name="losses", caption=caption, picture=Markup(picture(drawn.getvalue())))
    page.section("What it rests on", "rests")
    page.add("code", text=rest)
    return page.rendered("html")
