"""Accuracy against what it costs: bytes on the device, FLOPs of training. The upper left wins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rivals.experiment.report.figures import (
    HIGH,
    MUTED,
    PAPER,
    SIDE,
    Figure,
    colour,
    drawing,
    finish,
    marker,
)
from rivals.experiment.report.groups import Group, Section
from rivals.experiment.report.report_runs import FinishedRun

Place = tuple[str, float, float]  # of a name: its alignment, and how far from its point
PLACES: tuple[Place, ...] = (
    ("left", 9, 0), ("right", -9, 0), ("center", 0, 13), ("center", 0, -13), ("left", 8, 10),
    ("left", 8, -10), ("right", -8, 10), ("right", -8, -10), ("left", 9, 20), ("left", 9, -20),
    ("left", 9, -32), ("left", 9, 32), ("right", -9, -22), ("right", -9, 22), ("left", 9, -44),
)  # fmt: skip


def against_bytes(section: Section) -> Figure | None:
    return _against(
        section, lambda run: run.of_tickets("bytes"), f"{section.anchor}-bytes",
        "Accuracy against deployed bytes", "size of a ticket (one task, as a file)",
        "What is shipped to a device for one task, against accuracy with the task known.",
        "B",
    )  # fmt: skip


def against_flops(section: Section) -> Figure | None:
    return _against(
        section, lambda run: run.summary["flops"] or None, f"{section.anchor}-flops",
        "Accuracy against training FLOPs", "training FLOPs of the whole stream",
        "What training costs, everything charged, against accuracy with the task known.", "",
    )  # fmt: skip


def front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both: fewer costs and a higher accuracy."""
    best, kept = float("-inf"), []
    for x, y in sorted(points, key=lambda point: (point[0], -point[1])):
        if y > best:
            best = y
            kept.append((x, y))
    return kept


def _against(
    section: Section, of: Callable[[FinishedRun], Any], name: str, title: str, axis: str,
    caption: str, unit: str,
) -> Figure | None:  # fmt: skip
    points: list[tuple[Group, float, float, float]] = []
    for group in section.groups:
        x = group.mean(of)
        reached = group.spread(lambda run: run.summary["accuracy"]["task_known"])
        if x and reached:
            points.append((group, x, reached.mean, reached.deviation or 0.0))
    if not points:
        return None
    with drawing(SIDE, HIGH) as canvas:
        axes = canvas.subplots()
        axes.set_xscale("log")
        edge = front([(x, y) for _, x, y, _ in points])
        axes.plot(
            *zip(*edge, strict=True), color=MUTED, linewidth=1.1, linestyle=(0, (4, 3)), zorder=1,
            drawstyle="steps-post",
        )  # fmt: skip
        for group, x, y, spread in points:
            axes.errorbar(x, y, yerr=spread or None, color=colour(group), linewidth=1, zorder=2)
            axes.plot(
                x, y, marker(group), color=colour(group), zorder=3, markeredgecolor=PAPER,
                markeredgewidth=1, markersize=10 if group.method == "twta" else 8,
            )  # fmt: skip
        low, high = min(x for _, x, _, _ in points), max(x for _, x, _, _ in points)
        room = max(1.6, (high / low) ** 0.22)
        axes.set_xlim(low / room, high * room * 1.5)
        axes.margins(y=0.14)
        _ticks(axes, unit)
        axes.set_xlabel(f"{axis}, log scale; less is better")
        axes.set_ylabel("accuracy %, task known")
        canvas.draw_without_rendering()
        _labels(axes, points)
        return finish(
            canvas, name, title,
            f"{caption} The dashed line joins what no other system beats in both.",
        )  # fmt: skip


def _ticks(axes: Any, unit: str) -> None:
    """A few round numbers on a logarithmic axis, in words: 200 kB, 5 G."""
    low, high = axes.get_xlim()
    found: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [s * 10.0**p for p in powers for s in steps if low <= s * 10.0**p <= high]
        if len(found) >= 3:
            break
    axes.set_xticks(found, [_short(value, unit) for value in found])
    axes.set_xticks([], minor=True)


def _short(value: float, unit: str) -> str:
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 0.999 * size:
            return f"{value / size:,.3g} {letter}{unit}"
    return f"{value:.3g} {unit}".strip()


Box = tuple[float, float, float, float]  # left, right, low, high, in points


def _labels(axes: Any, points: list[tuple[Group, float, float, float]]) -> None:
    """A name beside every point, where it covers the fewest points and other names."""
    scale = 72 / axes.figure.dpi
    (left, low), (right, high) = axes.transAxes.transform([(0, 0), (1, 1)]) * scale
    at = {g.label: axes.transData.transform((x, y)) * scale for g, x, y, _ in points}
    taken: list[Box] = [(x - 5, x + 5, y - 5, y + 5) for x, y in at.values()]
    for group, x, y, _ in sorted(points, key=lambda point: -point[2]):
        px, py = at[group.label]
        boxes = {place: _box(px, py, len(group.label), place) for place in PLACES}
        covered = {
            place: sum(_meet(box, other) for other in taken)
            + 10 * (box[0] < left or box[1] > right or box[2] < low or box[3] > high)
            for place, box in boxes.items()
        }
        best = min(PLACES, key=covered.__getitem__)
        taken.append(boxes[best])
        axes.annotate(
            group.label, (x, y), xytext=best[1:], textcoords="offset points", ha=best[0],
            va="center", fontsize=9, color=colour(group),
            fontweight="bold" if group.method == "twta" else "normal",
        )  # fmt: skip


def _box(x: float, y: float, letters: int, place: Place) -> Box:
    """What a name of so many letters would cover."""
    side, across, up = place
    width = 5.4 * letters
    start = x + across - {"left": 0.0, "center": width / 2, "right": width}[side]
    return (start, start + width, y + up - 5.5, y + up + 5.5)


def _meet(one: Box, other: Box) -> bool:
    across = one[0] < other[1] and other[0] < one[1]
    return across and one[2] < other[3] and other[2] < one[3]
