"""An advice as one page of HTML, which needs nothing else: the curve of what sizes lose, and all of the text."""

import io

from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from grpo_theory.page.advice.screen import to_text
from grpo_theory.page.document import Page
from grpo_theory.page.picture import draw_losses, picture
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.run_advice import RunAdvice


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
