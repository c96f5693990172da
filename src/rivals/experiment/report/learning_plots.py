"""Plots of training, step by step, from the CSV logs of runs: how a task is learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from rivals.experiment.report.figures import Figure, drawing, finish, line_style
from rivals.experiment.report.groups import Group, Section
from rivals.experiment.report.report_runs import FinishedRun

Array = NDArray[np.float64]
SHARES = np.linspace(0, 1, 41)  # of a task's training, at which curves of tasks are averaged
SMOOTH = 20  # a point of one task is the mean of this part of its values
COLUMNS = {"loss": "training loss", "accuracy": "training accuracy %"}


def within_a_task(section: Section) -> Figure | None:
    """Loss and training accuracy while a task is learned: a line a method, mean over tasks."""
    groups = [group for group in section.groups if any(run.steps for run in group.runs)]
    if not groups:
        return None
    with drawing(12.4, 4.2) as canvas:
        panels = canvas.subplots(1, len(COLUMNS))
        for panel, (column, words) in zip(panels, COLUMNS.items(), strict=True):
            for group in groups:
                curve = mean_curve(group, column)
                if curve is not None:
                    panel.plot(100 * SHARES, curve, label=group.label, **line_style(group))
            panel.set_xlabel("% of the training of a task")
            panel.set_ylabel(words)
        canvas.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center",
            ncols=min(6, len(groups)), columnspacing=1.4, handlelength=1.8,
        )  # fmt: skip
        return finish(
            canvas, f"{section.anchor}-within-a-task", "Learning curves within a task",
            "Loss and accuracy on training batches while a task is learned, mean over tasks and "
            "seeds; from runs that were logged as CSV.", wide=True,
        )  # fmt: skip


def mean_curve(group: Group, column: str) -> Array | None:
    """The mean over all tasks of all runs, at even shares of a task's training."""
    curves = [
        np.interp(SHARES, steps / max(1.0, steps[-1]), values)
        for run in group.runs
        for steps, values in run.curves(column)
        if len(steps) > 1
    ]
    mean: Array | None = np.mean(curves, axis=0) if curves else None
    return mean


def every_task(section: Section) -> Figure | None:
    """Each task of one run: its loss and accuracy, and the entropy of units that compete."""
    run = next((run for group in _ours_first(section) for run in group.runs if run.steps), None)
    return None if run is None else task_curves(run, f"{section.anchor}-every-task")


def task_curves(run: FinishedRun, name: str) -> Figure | None:
    """A line a task, from the first, dark, to the last, light."""
    shown = {**COLUMNS, "entropy": "entropy of the competition, nats"}
    found = {words: run.curves(column) for column, words in shown.items()}
    found = {words: curves for words, curves in found.items() if curves}
    if not found:
        return None
    with drawing(12.4, 3.8) as canvas:
        panels = canvas.subplots(1, len(found), squeeze=False)[0]
        for panel, (words, curves) in zip(panels, found.items(), strict=True):
            for number, (steps, values) in enumerate(curves):
                panel.plot(
                    steps, smooth(values), color=_shade(number, len(curves)), linewidth=1.2,
                    marker="o" if len(steps) == 1 else "", markersize=3,
                )  # fmt: skip
            panel.set_xlabel("step of the task")
            panel.set_ylabel(words)
        return finish(
            canvas, name, "Every task, step by step",
            f"A line a task, the first dark and the last light: {run.name}. A point is the mean of "
            f"1/{SMOOTH} of a curve, where so much was logged.", wide=True,
        )  # fmt: skip


def smooth(values: Array) -> Array:
    """Means of the values around each; of fewer at the ends."""
    weights = np.ones(max(1, len(values) // SMOOTH))
    sums = np.convolve(values, weights, mode="same")
    whole: Array = sums / np.convolve(np.ones_like(values), weights, mode="same")
    return whole


def _ours_first(section: Section) -> list[Group]:
    return sorted(section.groups, key=lambda group: group.method != "twta")


def _shade(number: int, count: int) -> Any:
    return tuple(colormaps["viridis"](0.05 + 0.85 * number / max(1, count - 1)))
