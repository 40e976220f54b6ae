"""Pictures within the page: an SVG as a data URI of half its size, to be seen as it was."""

import re
from collections import Counter

_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_PLACES = re.compile(r'\b(d|x|y|x1|x2|y1|y2|cx|cy|width|height|points)="([^"]*)"')
_SHIFT = re.compile(r' transform="translate\(([-.\d]+) ([-.\d]+)\)"/>')
_DECIMALS = re.compile(r"(\.\d\d)\d+")
_LETTERS = re.compile(r" ?([A-Za-z]) ?")
_STYLE = re.compile(r'style="([^"]*)"')
_USED = re.compile(r'(?:href="#|url\(#)([^")]+)')
_NAME = re.compile(r' id="([^"]+)"')


def picture(svg: str) -> str:
    """Return an SVG as a data URI: hundredths of a point are kept, the rest of each coordinate is not.

    Names that are referred to are short, names that are not are left out, and looks that recur are written once.
    """
    svg = " ".join(_UNSEEN.sub("", svg).split()).replace("> <", "><")
    svg = _SHIFT.sub(lambda shift: f' x="{shift[1]}" y="{shift[2]}"/>'.replace(' y="0"', ""), svg)
    svg = _classed(_named(_PLACES.sub(_rounded, svg)))
    for character, code in (("%", "%25"), ("#", "%23"), ('"', "%22" if "'" in svg else "'"), ("&", "%26")):
        svg = svg.replace(character, code)
    return f"data:image/svg+xml;charset=utf-8,{svg}"


def _rounded(attribute: re.Match[str]) -> str:
    places = _LETTERS.sub(r"\1", attribute[2]) if attribute[1] == "d" else attribute[2]
    return f'{attribute[1]}="{_DECIMALS.sub(lambda found: found[1], places)}"'


def _named(svg: str) -> str:
    """Give short names to what is referred to, and none to the rest."""
    svg = svg.replace("xlink:href=", "href=").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    short = {name: f"n{number}" for number, name in enumerate(dict.fromkeys(_USED.findall(svg)))}
    svg = _NAME.sub(lambda name: f' id="{short[name[1]]}"' if name[1] in short else "", svg)
    return _USED.sub(lambda use: use[0].removesuffix(use[1]) + short[use[1]], svg)


def _classed(svg: str) -> str:
    """Put the looks that recur into classes, whose names are shortest for those that come most often."""
    looks = Counter(_STYLE.findall(svg)).most_common()
    short = {look: f"c{number}" for number, (look, count) in enumerate(looks) if count > 1}
    svg = _STYLE.sub(lambda style: f'class="{short[style[1]]}"' if style[1] in short else style[0], svg)
    rules = "".join(f".{name}{{{look}}}" for look, name in short.items())
    return svg.replace("</style>", f"{rules}</style>", 1)
