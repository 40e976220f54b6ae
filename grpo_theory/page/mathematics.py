"""Words with LaTeX between dollars, as HTML with MathML, which browsers typeset themselves: no script, font or network."""

import html
import re

from latex2mathml.converter import convert

_FUNCTIONS = re.compile(r"<mi>(arcsin|argmax|exp|log|max|min|sinh|tr)</mi>")
_PARTS = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)


class FormulaError(ValueError):
    """A formula that is no LaTeX; the message says which, and why."""


def typeset(text: str) -> str:
    """Return HTML of words that hold $formulae$ and $$formulae on a line of their own$$.

    Raises
    ------
    FormulaError
    """
    pieces, last = [], 0
    for found in _PARTS.finditer(text):
        pieces.append(html.escape(text[last : found.start()]))
        pieces.append(_display(found[1]) if found[1] else _mathml(found[2]))
        last = found.end()
    return "".join(pieces) + html.escape(text[last:])


def _display(formula: str) -> str:
    return f'<span class="formula">{_mathml(formula, "block")}</span>'


def _mathml(formula: str, display: str = "inline") -> str:
    """Return MathML with the thin spaces around names of functions that TeX puts there."""
    if not _balanced(formula):  # the converter makes something of it, in which a part is missing
        raise FormulaError(f"{formula!r} cannot be typeset: its braces do not match")
    try:
        made = convert(formula, display=display)
    except Exception as error:  # the converter has a class for each mistake, and some are of Python's own
        raise FormulaError(f"{formula!r} cannot be typeset: {type(error).__name__}") from None
    return _FUNCTIONS.sub(r'<mo lspace="0.17em" rspace="0.17em">\1</mo>', made)


def _balanced(formula: str) -> bool:
    depth = 0
    for one in re.findall(r"\\.|[{}]", formula, re.DOTALL):
        depth += (one == "{") - (one == "}")
        if depth < 0:
            return False
    return depth == 0
