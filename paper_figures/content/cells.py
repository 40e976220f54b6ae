"""The numbers in the cells of a heat map."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from seaborn.utils import relative_luminance

MIDDLE = 0.179
"""The luminance against which black and white have the same contrast, 4.6, by the web's guidelines (WCAG 2)."""


def make_readable(axes: Axes) -> None:
    """Make each number of a heat map black or white, whichever has the more contrast with its cell."""
    mesh = next(one for one in axes.collections if isinstance(one, QuadMesh))
    mesh.update_scalarmappable()
    for number, colour in zip(axes.texts, np.asarray(mesh.get_facecolor()), strict=True):
        number.set_color("black" if relative_luminance(colour) > MIDDLE else "white")
