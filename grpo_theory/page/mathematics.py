"""Words with LaTeX between dollars, as HTML with MathML, which browsers typeset themselves: no script, font or network."""

import html
import re
from xml.etree.ElementTree import tostring

from latex2mathml.converter import convert_to_element

_FUNCTIONS = re.compile(r"<mi>(arcsin|argmax|exp|log|max|min|sinh|tr)</mi>")
_PARTS = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)
_ELEMENTS = re.compile(
    "math|m(enclose|frac|i|n|o|over|padded|phantom|root|row|space|sqrt|style|sub|subsup|sup|table|td|text|tr|under|underover)"
)
_LOOKS = re.compile(
    "accent|accentunder|column(align|lines|spacing)|depth|display|displaystyle|fence|form|frame|height|largeop|linebreak|"
    "linethickness|lspace|math(background|color|size|variant)|maxsize|minsize|movablelimits|notation|row(lines|spacing)|rspace|"
    "scriptlevel|separator|stretchy|symmetric|voffset|width|xmlns"
)
"""The elements and attributes that a formula may become: none has a link, an event, a style sheet or a name."""


class FormulaError(ValueError):
    """A formula that is no LaTeX, or asks for more than mathematics; the message says which, and why."""


def typeset(text: str) -> str:
    """Return HTML of words that hold $formulae$ and $$formulae on a line of their own$$.

    Raises
    ------
    FormulaError
    """
    pieces, last = [], 0
    for found in _PARTS.finditer(text):
        pieces.append(html.escape(text[last : found.start()]))
        made = _mathml(found[1] or found[2], "block" if found[1] else "inline")
        pieces.append(f'<span class="formula">{made}</span>' if found[1] else made)
        last = found.end()
    return "".join(pieces) + html.escape(text[last:])


def _mathml(formula: str, display: str) -> str:
    """Return MathML with the thin spaces around names of functions that TeX puts there."""
    depths = [0]
    for one in re.findall(r"\\.|[{}]", formula, re.DOTALL):
        depths.append(depths[-1] + (one == "{") - (one == "}"))
    if min(depths) < 0 or depths[-1]:  # the converter makes something of it, in which a part is missing
        raise FormulaError(f"{formula!r} cannot be typeset: its braces do not match")
    try:
        made = convert_to_element(formula, display=display)
    except Exception as error:  # the converter has a class for each mistake, and some are of Python's own
        raise FormulaError(f"{formula!r} cannot be typeset: {type(error).__name__}") from None
    # What does more than draw is refused. Characters are escaped when the elements are written: the converter itself writes
    # references to them and escapes nothing, so HTML within a text would run.
    for element in made.iter():
        unknown = [] if _ELEMENTS.fullmatch(element.tag) else [element.tag]
        unknown += [name for name in element.attrib if not _LOOKS.fullmatch(name)]
        if unknown:
            raise FormulaError(f"{formula!r} cannot be typeset: it makes {unknown[0]!r}, and a formula may only draw")
        if left := re.search(r"\\[A-Za-z]+", element.text or ""):  # the converter shows as it stands what it does not know
            raise FormulaError(f"{formula!r} cannot be typeset: {left[0]} is unknown")
        element.attrib.update({name: html.unescape(value) for name, value in element.attrib.items()})
        element.text, element.tail = (text and html.unescape(text) for text in (element.text, element.tail))
    return _FUNCTIONS.sub(r'<mo lspace="0.17em" rspace="0.17em">\1</mo>', tostring(made, encoding="unicode"))
