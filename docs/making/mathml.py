"""Formulas as MathML, which browsers draw by themselves: the site needs no network and no fonts."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

_FUNCTION = re.compile(r"<mi(?: mathvariant=\"normal\")?>(\w+)</mi>\s*<mo>&ApplyFunction;</mo>(\s*<mo[^>]*>\()?")


def mathml(formula: str, as_block: bool = False) -> str:
    """Return MathML with the thin spaces around names of functions that TeX puts there; none before a parenthesis.

    Bars of a norm are as tall as their letters, and not as what stands above them.
    """
    return _FUNCTION.sub(_with_spaces, tex2mathml(formula, as_block=as_block)).replace(
        "<mo>‖</mo>", '<mo stretchy="false">‖</mo>'
    )


def _with_spaces(found: re.Match[str]) -> str:
    name, parenthesis = found.groups()
    return f'<mo lspace="0.17em" rspace="{"0" if parenthesis else "0.17em"}">{name}</mo>{parenthesis or ""}'


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Offer the renderer under the name "mathml"."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
