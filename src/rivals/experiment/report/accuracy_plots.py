"""Plots of what is learned and forgotten: the matrix, accuracy over tasks, points lost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rivals.experiment.report.figures import (
    HIGH,
    INK,
    MUTED,
    SIDE,
    Figure,
    colour,
    drawing,
    finish,
    line_style,
    task_ticks,
)
from rivals.experiment.report.groups import Group, Section

SPAN = 10.0  # points, at least, between the first colour and the last
WITH_NUMBERS = 10  # tasks; a longer matrix is shown by colour alone


def mean_matrix(group: Group) -> np.ndarray:
    """The accuracy matrix, mean over seeds; NaN where a task was not yet learned."""
    size = len(group.runs[0]["tasks"])
    stacked = np.full((len(group.runs), size, size), np.nan)
    for number, run in enumerate(group.runs):
        for i, row in enumerate(run["matrix"]):
            stacked[number, i, : i + 1] = row
    mean: np.ndarray = stacked.mean(axis=0)
    return mean


def matrix(section: Section) -> Figure:
    """A panel a method: row i is every task's accuracy after learning task i."""
    columns = _columns(len(section.groups))
    rows = math.ceil(len(section.groups) / columns)
    found = [mean_matrix(group) for group in section.groups]
    high = max(SPAN, *(float(np.nanmax(each)) for each in found))
    low = min(high - SPAN, *(float(np.nanmin(each)) for each in found))
    with drawing(12.4, (11.6 / columns + 0.2) * rows + 0.4) as canvas:
        panels = canvas.subplots(rows, columns, squeeze=False)
        for panel in panels.flat[len(found) :]:
            panel.set_axis_off()
        for panel, group, values in zip(panels.flat, section.groups, found, strict=False):
            picture = panel.imshow(
                values, vmin=low, vmax=high, cmap="viridis", interpolation="none", aspect="equal"
            )
            panel.set_title(group.label)
            panel.grid(False)
            for side in panel.spines.values():
                side.set_visible(False)
            ticks = task_ticks(section.tasks)
            panel.set_xticks([t - 1 for t in ticks], [str(t) for t in ticks])
            panel.set_yticks([t - 1 for t in ticks], [str(t) for t in ticks])
            panel.tick_params(length=0)
            if section.tasks <= WITH_NUMBERS:
                _numbers(panel, values, low, high, columns)
        for panel in panels[:, 0]:
            panel.set_ylabel("after task")
        for panel in panels[-1]:
            panel.set_xlabel("accuracy on task")
        bar = canvas.colorbar(picture, ax=panels, shrink=0.8, aspect=18 * rows, pad=0.012)
        bar.outline.set_visible(False)
        bar.set_label("accuracy %")
        return finish(
            canvas, f"{section.anchor}-matrix", "Accuracy matrix",
            "Accuracy on every task after each task, task known, mean over seeds. A column that "
            "keeps its colour from top to bottom is a task that is not forgotten.", wide=True,
        )  # fmt: skip


def _columns(panels: int) -> int:
    """Panels in a row: four to six, the last row as full as can be."""
    if panels <= 6:
        return max(4, panels)
    return max((6, 5, 4), key=lambda columns: ((panels - 1) % columns + 1) / columns)


def _numbers(panel: Any, values: np.ndarray, low: float, high: float, columns: int) -> None:
    size = (9 if len(values) <= 5 else 6) if columns <= 5 else (8 if len(values) <= 5 else 5)
    for (i, j), value in np.ndenumerate(values):
        if not np.isnan(value):
            shade = "#111111" if value > low + 0.62 * (high - low) else "#ffffff"
            panel.text(j, i, f"{value:.0f}", ha="center", va="center", color=shade, fontsize=size)


def over_tasks(section: Section) -> Figure:
    """The mean accuracy over the tasks seen so far, as tasks come."""
    x = range(1, section.tasks + 1)
    rows = math.ceil(len(section.groups) / 3)  # of the legend
    with drawing(SIDE, HIGH + 0.17 * max(0, rows - 2)) as canvas:
        axes = canvas.subplots()
        for group in section.groups:
            curves = np.array([[np.mean(row) for row in run["matrix"]] for run in group.runs])
            mean = curves.mean(axis=0)
            mark = {"marker": "o", "markersize": 4} if section.tasks <= 12 else {}
            axes.plot(x, mean, label=group.label, **line_style(group), **mark)
            if len(curves) > 1:
                spread = curves.std(axis=0, ddof=1)
                axes.fill_between(
                    x, mean - spread, mean + spread, color=colour(group), alpha=0.13, linewidth=0
                )
        axes.set_xlabel("tasks learned")
        axes.set_ylabel("accuracy %, task known")
        axes.set_xticks(task_ticks(section.tasks))
        _legend(canvas, axes, len(section.groups))
        return finish(
            canvas, f"{section.anchor}-over-tasks", "Accuracy over tasks",
            "Mean accuracy over the tasks learned so far, task known; bands are the deviation "
            "over seeds.",
        )  # fmt: skip


def forgotten(section: Section) -> Figure:
    """Points that tasks have lost at the end, a bar a method."""
    groups = section.groups[::-1]
    found = [group.spread(lambda run: run.summary["bti"]) for group in groups]
    means = [each.mean if each else 0.0 for each in found]
    spreads = [(each.deviation or 0.0) if each else 0.0 for each in found]
    with drawing(SIDE, max(HIGH, 0.27 * len(groups) + 0.7)) as canvas:
        axes = canvas.subplots()
        axes.barh(
            range(len(groups)), means, color=[colour(group) for group in groups], height=0.62,
            xerr=[spread or np.nan for spread in spreads],
            error_kw={"ecolor": MUTED, "elinewidth": 1, "capsize": 2.5},
        )  # fmt: skip
        axes.set_yticks(range(len(groups)), [group.label for group in groups])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="y", visible=False)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        reach = max([abs(m) + s for m, s in zip(means, spreads, strict=True)], default=0) or 1.0
        low = min([m - s for m, s in zip(means, spreads, strict=True)], default=0)
        axes.set_xlim(min(0.0, low) - (0.08 * reach if low < 0 else 0), 1.16 * max(reach, 1.0))
        for at, (mean, spread) in enumerate(zip(means, spreads, strict=True)):
            place = max(mean, 0) + spread + 0.015 * max(reach, 1.0)
            shown = f"{mean:.1f}".replace("-0.0", "0.0")
            axes.text(place, at, shown, va="center", fontsize=9, color=MUTED)
        axes.set_xlabel("points lost since learned (BTI); lower is better")
        return finish(
            canvas, f"{section.anchor}-forgetting", "Forgetting",
            "How many points of accuracy a task has lost at the end, the mean over tasks. "
            "Lines are the deviation over seeds.",
        )  # fmt: skip


def _legend(canvas: Any, axes: Any, entries: int) -> None:
    canvas.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center", ncols=min(3, entries), columnspacing=1.4, handlelength=1.8,
    )  # fmt: skip
