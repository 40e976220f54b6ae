"""Pictures within the page: an SVG as a data URI of half its size, and the curve of a plan."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNSEEN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_PLACES = re.compile(r'\b(d|x|y|x1|x2|y1|y2|cx|cy|width|height|points)="([^"]*)"')
_SHIFT = re.compile(r' transform="translate\(([-.\d]+) ([-.\d]+)\)"/>')
_DECIMALS = re.compile(r"(\.\d)\d*")
_LETTERS = re.compile(r" ?([A-Za-z]) ?")
_STEP = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_STYLE = re.compile(r'style="([^"]*)"')
_USED = re.compile(r'(?:href="#|url\(#)([^")]+)')
_NAME = re.compile(r' id="([^"]+)"')


def picture(svg: str) -> str:
    """Return an SVG as a data URI: tenths of a point are kept, the rest of each coordinate is not.

    Names that are referred to are short, names that are not are left out, and looks that recur are written once.
    """
    svg = " ".join(_UNSEEN.sub("", svg).split()).replace("> <", "><")
    svg = _SHIFT.sub(lambda shift: f' x="{shift[1]}" y="{shift[2]}"/>'.replace(' y="0"', ""), svg)
    svg = _PLACES.sub(_rounded, svg)
    svg = svg.replace("xlink:href=", "href=").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    names = {name: f"n{number}" for number, name in enumerate(dict.fromkeys(_USED.findall(svg)))}
    svg = _NAME.sub(lambda name: f' id="{names[name[1]]}"' if name[1] in names else "", svg)
    svg = _USED.sub(lambda use: use[0].removesuffix(use[1]) + names[use[1]], svg)
    # The names of classes are shortest for the looks that come most often.
    looks = Counter(_STYLE.findall(svg)).most_common()
    classes = {look: f"c{number}" for number, (look, count) in enumerate(looks) if count > 1}
    svg = _STYLE.sub(lambda style: f'class="{classes[style[1]]}"' if style[1] in classes else style[0], svg)
    rules = "".join(f".{name}{{{look}}}" for look, name in classes.items())
    svg = svg.replace("</style>", f"{rules}</style>", 1)
    for character, code in (("%", "%25"), ("#", "%23"), ('"', "%22" if "'" in svg else "'"), ("&", "%26")):
        svg = svg.replace(character, code)
    return f"data:image/svg+xml;charset=utf-8,{svg}"


def _rounded(attribute: re.Match[str]) -> str:
    """Write places to tenths, and lines across and upright with their one coordinate."""
    places = _LETTERS.sub(r"\1", attribute[2]) if attribute[1] == "d" else attribute[2]
    places = _DECIMALS.sub(lambda found: found[1].replace(".0", ""), places)
    if attribute[1] != "d":
        return f'{attribute[1]}="{places}"'
    at, steps = [""], []
    for letter, numbers in _STEP.findall(places):
        to = numbers.split()
        across, upright = to[1:] == at[1:] and len(to) == 2, to[:1] == at[:1] and len(to) == 2
        steps.append(f"H{to[0]}" if letter == "L" and across else f"V{to[1]}" if letter == "L" and upright else letter + numbers)
        at = to[-2:] or [""]
    return f'd="{"".join(steps)}"'


def draw_losses(axes: "Axes", advice: Any) -> None:
    """Draw what each group size loses in a step, with limits: an advice with scores, which no module of the report may import.

    Points on the abscissa are the sizes that may be best, a circle the recommended one, a cross the user's.
    """
    choice, scores = advice.scores.choice, advice.scores
    compared = advice.group_size if advice.group_size in choice.group_sizes else None
    last = max(64, 2 * choice.group_size, compared or 0, choice.high if choice.bounded else 0)
    shown = choice.group_sizes <= last
    sizes, loss, top = choice.group_sizes[shown], choice.loss, 1.0
    level = f"{100.0 * advice.level:g}% limits"
    limits = axes.fill_between(sizes, loss.low[shown], np.minimum(loss.high[shown], 100.0), alpha=0.25, linewidth=0)
    axes.plot(sizes, loss.estimate[shown], color=np.asarray(limits.get_facecolor())[0, :3].tolist(), label=f"error, {level}")
    best = sizes[choice.candidates[shown]]
    axes.plot(best, np.zeros(best.size), ".", color="#009E73", label="may be the best size")
    axes.plot(choice.group_size, 0.0, "o", color="#009E73", markersize=8, label=f"recommended: {choice.group_size}", zorder=5)
    if compared is not None and compared != choice.group_size:
        found = float(loss.estimate[choice.at(compared)])
        top = max(top, 1.5 * found)
        axes.plot(compared, found, "X", color="#D55E00", markersize=8, label=f"yours: {compared}", zorder=5)
    axes.set_ylim(-0.05 * top, top)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100.0 * value:.0f}%")
    axes.set_ylabel("error above the least" if scores.own is None else "best efficiency above this one")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:g}")
    axes.set_xlabel("group size: responses per prompt")
