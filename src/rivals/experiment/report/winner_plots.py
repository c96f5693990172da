"""Plots of the competition: who won each block, how alike tasks are, how much room is left."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps

from rivals.experiment.report.figures import (
    HIGH,
    MUTED,
    PAPER,
    SIDE,
    Figure,
    drawing,
    finish,
    task_ticks,
)
from rivals.experiment.report.groups import Group, Section

FEW_UNITS = 10  # colours that can be told apart


def chosen(section: Section) -> Group | None:
    """The competing system to look at: TWTA if it is there."""
    groups = [group for group in section.groups if group.runs[0].winners]
    return next((g for g in groups if g.method == "twta"), groups[0] if groups else None)


def winner_map(section: Section) -> Figure | None:
    """A row a task, a column a block, a colour a winner."""
    group = chosen(section)
    if group is None:
        return None
    winners = np.array(group.runs[0].winners)
    units = int(winners.max()) + 1
    with drawing(12.4, min(5.5, 1.5 + 0.2 * len(winners))) as canvas:
        axes = canvas.subplots()
        few = units <= FEW_UNITS
        picture = axes.imshow(
            winners, aspect="auto", interpolation="none", cmap="tab10" if few else "turbo",
            vmin=-0.5 if few else 0, vmax=9.5 if few else units - 1,
        )  # fmt: skip
        _plain(axes)
        ticks = task_ticks(len(winners))
        axes.set_yticks([t - 1 for t in ticks], [str(t) for t in ticks])
        for edge in np.cumsum(group.runs[0].layers)[:-1]:
            axes.axvline(edge - 0.5, color=PAPER, linewidth=2.2)
        axes.set_xlabel("blocks, layer by layer")
        axes.set_ylabel("task")
        at = list(range(units)) if few else None
        bar = canvas.colorbar(picture, ax=axes, aspect=12, pad=0.01, ticks=at)
        if few:
            bar.ax.set_ylim(-0.5, units - 0.5)
        bar.outline.set_visible(False)
        bar.set_label("winning unit")
        return finish(
            canvas, f"{section.anchor}-winners", "Winner map",
            f"Which unit of each block won each task: {group.label}, seed {group.seeds[0]}.",
            wide=True,
        )  # fmt: skip


def overlap(section: Section) -> Figure | None:
    """The share of blocks in which two tasks have the same winner, for every pair of tasks."""
    group = chosen(section)
    if group is None or len(group.runs[0].winners) < 2:
        return None
    shares = [shared_winners(np.array(run.winners)) for run in group.runs if run.winners]
    mean = np.mean(shares, axis=0)
    np.fill_diagonal(mean, np.nan)
    chance = group.mean(lambda run: run.summary.get("overlap_by_chance"))
    with drawing(SIDE, HIGH) as canvas:
        axes = canvas.subplots()
        high = max(float(np.nanmax(mean)), chance or 0.0)
        picture = axes.imshow(mean, cmap="magma", interpolation="none", vmin=0, vmax=1.05 * high)
        _plain(axes)
        ticks = task_ticks(len(mean))
        for set_ticks in (axes.set_xticks, axes.set_yticks):
            set_ticks([t - 1 for t in ticks], [str(t) for t in ticks])
        axes.set_xlabel("task")
        axes.set_ylabel("task")
        bar = canvas.colorbar(picture, ax=axes, shrink=0.85)
        bar.outline.set_visible(False)
        bar.set_label("blocks with the same winner, %")
        if chance is not None:
            bar.ax.axhline(chance, color="#ffffff", linewidth=2)
        by_chance = (
            "" if chance is None else f" By chance it would be {chance:.1f} %, the white line."
        )
        return finish(
            canvas, f"{section.anchor}-overlap", "Overlap between tasks",
            f"Share of blocks in which two tasks have the same winner: {group.label}, mean over "
            f"seeds.{by_chance}",
        )  # fmt: skip


def shared_winners(winners: np.ndarray) -> np.ndarray:
    """Percent of blocks with the same winner, for every pair of rows."""
    same: np.ndarray = 100.0 * (winners[:, None, :] == winners[None, :, :]).mean(axis=2)
    return same


def room(section: Section) -> Figure | None:
    """The share of every layer's weights that no task has claimed, as tasks come."""
    group = next(
        (g for g in section.groups if g.method == "twta" and g.runs[0]["tasks"][0].get("free")),
        next((g for g in section.groups if g.runs[0]["tasks"][0].get("free")), None),
    )
    if group is None:
        return None
    layers = list(group.runs[0]["tasks"][0]["free"])
    x = range(1, section.tasks + 1)
    with drawing(SIDE, HIGH) as canvas:
        axes = canvas.subplots()
        shades = _shades(len(layers))
        for layer, shade in zip(layers, shades, strict=True):
            curves = [
                [100 * t.get("free", {}).get(layer, np.nan) for t in r["tasks"]] for r in group.runs
            ]
            mark = {"marker": "o", "markersize": 3.5} if section.tasks <= 12 else {}
            axes.plot(x, np.mean(curves, axis=0), color=shade, label=layer, **mark)
        axes.set_ylim(0, 103)
        axes.set_xlabel("tasks learned")
        axes.set_ylabel("weights that no task has claimed, %")
        axes.set_xticks(task_ticks(section.tasks))
        canvas.legend(
            *axes.get_legend_handles_labels(), loc="outside lower center",
            ncols=min(5, len(layers)), columnspacing=1.4, handlelength=1.6,
        )  # fmt: skip
        return finish(
            canvas, f"{section.anchor}-room", "Room left",
            f"Weights of each layer that are still free: {group.label}, mean over seeds. A layer "
            "that runs out grows or is read only.",
        )  # fmt: skip


def _shades(count: int) -> list[Any]:
    picked = colormaps["viridis"](np.linspace(0.12, 0.88, max(count, 1)))
    return [tuple(shade) for shade in picked]


def _plain(axes: Any) -> None:
    axes.grid(False)
    axes.tick_params(length=0, labelcolor=MUTED)
    for side in axes.spines.values():
        side.set_visible(False)
