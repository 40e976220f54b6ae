"""An advice as one page of HTML, which needs nothing else: the words, and the curves as SVG."""

from html import escape

from grpo_theory.page.advice.curves import curves
from grpo_theory.page.advice.text import sections
from grpo_theory.page.section import Section
from grpo_theory.plan.advice import Advice
from grpo_theory.plan.run_advice import RunAdvice

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c1c1c; --rule: #d0d0d0; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e6e6e6; --rule: #44484d; } }
body { background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem;
       margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 1.8rem; }
svg { width: 100%; height: auto; max-width: 40rem; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
th, td { text-align: left; vertical-align: bottom; padding: 0.2rem 0.9rem 0.2rem 0; border-bottom: 1px solid var(--rule); }
td { white-space: nowrap; }
@media (max-width: 34rem) { td { white-space: normal; } table { font-size: 0.74rem; } th, td { padding-right: 0.35rem; } }
pre { overflow-x: auto; font-size: 0.85rem; }
"""
TITLE = "grpo-theory plan"


def to_html(advice: Advice, run: RunAdvice | None = None) -> str:
    """Format an advice as one page of HTML with the text and the curves.

    `run` is what `gt.plan.advise_run` returns, if it was asked.

    Examples
    --------
    >>> import grpo_theory as gt
    >>> data = gt.data.sampled_answers()
    >>> page = gt.page.to_html(gt.plan.advise(gt.Rollouts(data.rewards[data.index]), 1024))
    >>> page.startswith("<!doctype html>")
    True
    """
    first, *others = sections(advice, run)
    drawn = "".join(f"<figure style='margin:1rem 0'>{picture}</figure>" for picture in curves(advice))
    body = f"<h1>{TITLE}</h1>{_section(first)}{drawn}{''.join(_section(part) for part in others)}"
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{TITLE}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _section(part: Section) -> str:
    text = "".join(f"<p>{escape(line)}</p>" for line in part.paragraphs)
    code = f"<pre>{escape(chr(10).join(part.code))}</pre>" if part.code else ""
    return f"<section><h2>{escape(part.title)}</h2>{text}{code}{_table(part.table)}</section>"


def _table(rows: tuple[tuple[str, ...], ...]) -> str:
    if not rows:
        return ""
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in body)
    return f"<div class='wide'><table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>"
