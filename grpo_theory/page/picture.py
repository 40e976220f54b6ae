"""Pictures within the page: an SVG as a data URI of half its size, to be seen as it was."""

import re

_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_PLACES = re.compile(r'\b(d|x|y|x1|x2|y1|y2|cx|cy|width|height|points)="([^"]*)"')
_SHIFT = re.compile(r' transform="translate\(([-.\d]+) ([-.\d]+)\)"/>')
_DECIMALS = re.compile(r"(\.\d\d)\d+")
_LETTERS = re.compile(r" ?([A-Za-z]) ?")
_USED = re.compile(r'(?:href="#|url\(#)([^")]+)')
_NAME = re.compile(r' id="([^"]+)"')


def picture(svg: str) -> str:
    """Return an SVG as a data URI: hundredths of a point are kept, the rest of each coordinate is not.

    Names that are referred to are short, and names that are not are left out.
    """
    svg = " ".join(_UNSEEN.sub("", svg).split()).replace("> <", "><")
    svg = _SHIFT.sub(lambda shift: f' x="{shift[1]}" y="{shift[2]}"/>'.replace(' y="0"', ""), svg)
    svg = _named(_PLACES.sub(_rounded, svg))
    for character, code in (("%", "%25"), ("#", "%23"), ('"', "%22" if "'" in svg else "'"), ("&", "%26")):
        svg = svg.replace(character, code)
    return f"data:image/svg+xml;charset=utf-8,{svg}"


def _rounded(attribute: re.Match[str]) -> str:
    name, places = attribute.groups()
    places = _DECIMALS.sub(lambda decimals: decimals[1], places)
    return f'{name}="{_LETTERS.sub(lambda letter: letter[1], places) if name == "d" else places}"'


def _named(svg: str) -> str:
    """Give short names to what is referred to, and none to the rest."""
    svg = svg.replace("xlink:href=", "href=").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    short = {name: f"n{number}" for number, name in enumerate(dict.fromkeys(_USED.findall(svg)))}
    svg = _NAME.sub(lambda name: f' id="{short[name[1]]}"' if name[1] in short else "", svg)
    return _USED.sub(lambda use: use[0].removesuffix(use[1]) + short[use[1]], svg)
