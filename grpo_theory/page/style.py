"""One style for all figures: colours that survive colour blindness, markers that survive black and white."""

import tomllib
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

NORMAL_95 = 1.959963984540054
"""Half-width of a 95% interval in standard errors."""
_HERE = Path(__file__).parent
_READ = tomllib.loads((_HERE / "looks.toml").read_text(encoding="utf-8"))


class Look(NamedTuple):
    """How an estimator, or a problem, is drawn everywhere."""

    label: str
    colour: str
    marker: str
    line: str


BLACK, ORANGE, SKY, GREEN, BROWN, BLUE, VERMILION, PURPLE, GREY = _READ["colours"].values()
ESTIMATORS, PROBLEMS, RATIOS, CONSTANTS = (
    {name: Look(label, _READ["colours"][colour], *marks) for name, (label, colour, *marks) in _READ[kind].items()}
    for kind in ("estimators", "problems", "ratios", "constants")
)
METHODS, TRAINING, PHASES, AUTHORS = (_READ[kind] for kind in ("methods", "training", "phases", "authors"))
LANGUAGE_MODEL = ("lm-zero-shot", "lm-few-shot", "lm-instruct")


def apply() -> None:
    """Set the style; call once before drawing."""
    import seaborn as sns  # here, because it loads scipy.stats, which takes longer than all else that a report needs

    own = mpl.rc_params_from_file(_HERE / "figures.mplstyle", use_default_template=False)
    sns.set_theme(context="paper", style="ticks", font_scale=1.05, rc=dict(own))
