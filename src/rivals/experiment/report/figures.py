"""How every plot looks, and how it becomes an SVG that takes its colours from the page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rivals.errors import RivalsError
from rivals.experiment.report.groups import Group

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas
except ImportError as error:
    raise RivalsError(
        "rivals report needs matplotlib and jinja2; pip install 'rivals[report]'."
    ) from error

# Stand-ins while drawing: in the SVG they become variables of the page, with these as fallbacks.
INK, MUTED, LINE, PAPER, ACCENT = "#1b1f24", "#6a737d", "#d8dde3", "#fdfdfc", "#d1495b"
VARIABLES = {INK: "ink", MUTED: "muted", LINE: "line", PAPER: "paper", ACCENT: "accent"}
COLOURS = {
    "twta": ACCENT, "random-ticket": "#e59a54", "gem": "#4c78a8", "icarl": "#5aa9a2",
    "er": "#54a24b", "il2m": "#b279a2", "der": "#3f8f6b", "lamaml": "#9d755d",
    "fsdgpm": "#c9a227", "gpm": "#3b7ddd", "softnet": "#e07a9a", "llt": "#8257d6",
    "wsn": "#0e9f8a", "sparcl": "#b5367a", "chain": "#8a97a6", "independent": "#7f8f5f",
    "finetune": "#a08d7a", "joint": "#7c7f93", "ncm": "#7a9cc6", "slda": "#4f6d8f",
    "ranpac": "#b8860b", "fecam": "#6b8e23",
}  # fmt: skip
OTHERS = ("#5b8def", "#d97f30", "#4aa564", "#a86bc4", "#c4577f", "#6f7f95")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":", "-.")
STYLE: Any = {
    "font.family": "sans-serif", "font.size": 10, "axes.titlesize": 10.5, "axes.labelsize": 10,
    "axes.titlelocation": "left", "axes.titleweight": "bold", "axes.titlepad": 8,
    "text.color": INK, "axes.labelcolor": MUTED, "axes.titlecolor": INK, "axes.edgecolor": LINE,
    "xtick.color": LINE, "ytick.color": LINE, "xtick.labelcolor": MUTED, "ytick.labelcolor": MUTED,
    "xtick.labelsize": 9, "ytick.labelsize": 9, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "lines.linewidth": 1.8, "legend.frameon": False,
    "legend.fontsize": 9, "legend.labelcolor": INK, "figure.facecolor": "none",
    "axes.facecolor": "none", "savefig.facecolor": "none", "text.parse_math": False,
    "svg.fonttype": "none", "svg.hashsalt": "rivals", "figure.constrained_layout.use": True,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A drawn plot: its name, an SVG, and what it shows in words."""

    name: str
    title: str
    caption: str
    svg: str
    wide: bool = False


SIDE, HIGH = 5.4, 3.7  # inches of a plot that stands beside another


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    """An empty canvas in the style of the house."""
    with mpl.rc_context(STYLE):
        yield Canvas(figsize=(width, height))


def colour(group: Group) -> str:
    if group.method in COLOURS:
        return COLOURS[group.method]
    return OTHERS[sum(group.method.encode()) % len(OTHERS)]


def line_style(group: Group) -> dict[str, Any]:
    """TWTA stands out, references stay behind."""
    dashes = DASHES[group.variant % len(DASHES)]
    if group.reference and not group.variant:
        dashes = "--"
    front = {"linewidth": 2.6, "zorder": 4} if group.method == "twta" else {"zorder": 3}
    return {"color": colour(group), "linestyle": dashes, **front}


def marker(group: Group) -> str:
    return MARKERS[group.variant % len(MARKERS)] if not group.reference else "X"


def task_ticks(tasks: int) -> list[int]:
    """At most ten numbers of tasks, the first and evenly spaced ones."""
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 1000, 10**6) if tasks / s <= 10)
    return [1, *range(step, tasks + 1, step)] if step > 1 else list(range(1, tasks + 1))


def finish(canvas: Any, name: str, title: str, caption: str, wide: bool = False) -> Figure:
    """The SVG of a canvas: colours as variables, names that no other SVG of the page has."""
    out = io.StringIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    for stand_in, variable in VARIABLES.items():
        svg = svg.replace(stand_in, f"var(--{variable}, {stand_in})")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-").replace('href="#', f'href="#{name}-')
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+)px '[^\"]*?(?=;|\")", r"font: \1px var(--sans, sans-serif)", svg)
    return Figure(name, title, caption, svg.strip(), wide)
