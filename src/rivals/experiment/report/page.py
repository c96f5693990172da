"""One page that holds everything: tables that sort, plots, and nothing from outside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup

from rivals import __version__
from rivals.experiment.report.figures import Figure
from rivals.experiment.report.formats import words
from rivals.experiment.report.groups import Section
from rivals.experiment.report.tables import Cell, Column, Table

REFRESH_SECONDS = 5  # after which a live page asks for itself again


@dataclass(frozen=True)
class Chapter:
    """What the page shows of a section."""

    section: Section
    tables: list[Table]
    figures: list[Figure]


def page(
    overviews: list[Table], chapters: list[Chapter], title: str, running: Table | None = None,
    curves: Sequence[Figure] = (), live: bool = False,
) -> str:  # fmt: skip
    """The page as HTML. Names from files are escaped; SVGs are our own."""
    from jinja2 import DictLoader, Environment

    text = (resources.files("rivals.experiment.report") / "page.html").read_text()
    environment = Environment(
        loader=DictLoader({"page": text}), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["words"] = words
    environment.filters["svg"] = lambda figure: Markup(_labelled(figure))
    environment.filters["tight"] = lambda head: re.sub(" (?=[%†])", "\u00a0", head)
    environment.globals["bar"] = _bar
    runs = [run for chapter in chapters for run in chapter.section.runs]
    facts: dict[str, Any] = {
        "runs": len(runs),
        "methods": len({run["method"] for run in runs}),
        "benchmarks": len({run["benchmark"] for run in runs}),
        "seeds": len({run["seed"] for run in runs}),
    }
    return environment.get_template("page").render(
        title=title, overviews=overviews, chapters=chapters, facts=facts, version=__version__,
        running=running, curves=curves, refresh=REFRESH_SECONDS if live else None,
        references={g.label for c in chapters for g in c.section.groups if g.reference},
    )  # fmt: skip


def _labelled(figure: Figure) -> str:
    """The SVG with a role and a name, so that it is announced as the picture that it is."""
    label = Markup.escape(f"{figure.title}. {figure.caption}")
    return figure.svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _bar(cell: Cell, column: Column) -> float | None:
    """How far a bar behind a percentage reaches; none where there is no percentage."""
    if column.style != "percent" or column.printed or cell.value is None or not column.better:
        return None
    return round(max(0.0, min(100.0, cell.value)) / 100, 3)
