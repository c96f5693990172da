"""What a person sees of a run: a bar per task, a line after it, tables at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from rivals.experiment.loop import Run, RunCallback
from rivals.learn.method import StepResult
from rivals.learn.trainer import Trainer

WIDEST_MATRIX = 10  # tasks; a longer stream is shown as two columns


class Screen(RunCallback):
    """Shows progress where there is a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(quiet=quiet, highlight=False, markup=False, emoji=False)
        self.messages = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.lively = self.console.is_terminal and not quiet
        self.progress: Progress | None = None
        self.bar: TaskID | None = None
        self.right = self.seen = 0
        self.length = 0

    @contextmanager
    def opened(self, run: Run) -> Iterator[None]:
        """Keep the bar on screen while the run goes."""
        self.length = len(run.stream)
        if not self.lively:
            yield
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[numbers]}", markup=False),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as self.progress:
            yield

    def on_task_begin(self, trainer: Trainer) -> None:
        task, method = trainer.task.name, trainer.method
        self.right = self.seen = 0
        if self.progress is None:
            return
        number = len([name for name in method.known if name != task]) + 1
        if self.bar is not None:
            self.progress.remove_task(self.bar)
        text = f"task {number}/{self.length} {task}"
        self.bar = self.progress.add_task(text, total=None, numbers="")

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        step, method = result, trainer.method
        if self.progress is None or self.bar is None:
            return
        self.right, self.seen = self.right + step.correct, self.seen + step.seen
        at = method.position
        if at.batch == 1:
            self.right, self.seen = step.correct, step.seen
        temperature = getattr(method, "temperature", None)
        heat = f"τ {temperature():.2f}  " if temperature and method.phase != "settled" else ""
        numbers = f"loss {step.loss:.3f}  accuracy {100 * self.right / self.seen:.1f} %  {heat}"
        self.progress.update(self.bar, completed=at.step, total=at.steps, numbers=numbers)

    def on_results(self, run: Run) -> None:
        """One line after each task: what it reached and what it keeps."""
        results = run.results
        if not self.lively:
            return
        task, kept = results.content["tasks"][-1], results.content["summary"]["retained"]
        ticket = task["ticket"]
        self.console.print(
            f"task {len(results.content['tasks'])}/{self.length} {task['name']}: "
            f"{task['accuracy']:.1f} % right, keeps {ticket['weights']:,} weights "
            f"({kept['effective']:.1f} % of the network), {ticket['bytes']:,} bytes"
        )

    def say(self, text: str) -> None:
        self.messages.print(text, soft_wrap=True)

    def report(self, content: dict[str, Any], folder: Path) -> None:
        """The matrix, the summary, and what to do next."""
        self.console.print(matrix_table(content))
        self.console.print(summary_table(content))
        self.console.print(
            f"Results are in {folder / 'results.json'}, tickets in {folder / 'tickets'}.",
            soft_wrap=True,
        )


def matrix_table(content: dict[str, Any]) -> Table:
    """Accuracy with the task known: a row after each task, or two columns for a long stream."""
    names = [task["name"] for task in content["tasks"]]
    rows = content["matrix"]
    subset = f" · {content['subset']}" if content["subset"] else ""
    table = Table(title=f"accuracy %, task known · {content['method']}{subset}")
    if len(names) <= WIDEST_MATRIX:
        table.add_column("after")
        for name in names:
            table.add_column(name, justify="right")
        for name, row in zip(names, rows, strict=True):
            table.add_row(name, *(f"{value:.1f}" for value in row))
        return table
    for head in ("task", "when learned", "at the end"):
        table.add_column(head, justify="left" if head == "task" else "right")
    for number, name in enumerate(names):
        table.add_row(name, f"{rows[number][number]:.1f}", f"{rows[-1][number]:.1f}")
    return table


def summary_table(content: dict[str, Any]) -> Table:
    """The numbers of the paper's tables for this run."""
    summary, table = content["summary"], Table(show_header=False)
    accuracy, kept = summary["accuracy"], summary["retained"]
    inferred = accuracy["task_inferred"]
    lines = [
        ("accuracy, task known", f"{accuracy['task_known']:.1f} %"),
        ("accuracy, task inferred", "n/a" if inferred is None else f"{inferred:.1f} %"),
        ("forgotten (BTI)", f"{summary['bti']:.1f}"),
    ]
    if summary["overlap"] is not None:
        chance = summary["overlap_by_chance"]
        lines.append(
            ("winners shared by neighbours", f"{summary['overlap']:.1f} % (chance {chance:.1f} %)")
        )
    lines += [
        ("weights kept, nominal", f"{kept['nominal']:.1f} %"),
        ("weights kept, effective", f"{kept['effective']:.1f} % ({kept['weights']:,.0f} a task)"),
        ("training FLOPs", f"{summary['flops']:.2e}"),
        ("bytes needed to continue", f"{sum(summary['bytes'].values()):,}"),
    ]
    for line in lines:
        table.add_row(*line)
    return table
