"""Accuracy against what it costs: bytes on the device, FLOPs of training. The upper left wins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rivals.report.figures import (
    HIGH,
    MUTED,
    PAPER,
    SIDE,
    Figure,
    colour,
    drawing,
    finish,
    marker,
)  # fmt: skip
from rivals.report.groups import Group, Section
from rivals.report.runs import FinishedRun

APART = 13.0  # points between two labels


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


def _labels(axes: Any, points: list[tuple[Group, float, float, float]]) -> None:
    """A name beside every point, pushed apart where two would touch."""
    placed: list[tuple[float, float]] = []
    right = axes.transAxes.transform((1, 0))[0]
    scale = 72 / axes.figure.dpi
    for group, x, y, _ in sorted(points, key=lambda point: -point[2]):
        px, py = axes.transData.transform((x, y)) * scale
        width = 5.6 * len(group.label) + 12
        left = px + width > right * scale
        start = px - width if left else px
        at = py
        while any(abs(at - oy) < APART and abs(start - ox) < width for ox, oy in placed):
            at -= 1.0
        placed.append((start, at))
        axes.annotate(
            group.label, (x, y), xytext=(-9 if left else 9, at - py), textcoords="offset points",
            ha="right" if left else "left", va="center", fontsize=9, color=colour(group),
            fontweight="bold" if group.method == "twta" else "normal",
        )  # fmt: skip
