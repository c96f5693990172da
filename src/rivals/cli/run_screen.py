"""What a person sees of a run: a progress bar and a line for each task, tables at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress, TaskID, TimeRemainingColumn
from rich.table import Table

from rivals.cli.matrix_table import matrix_table
from rivals.cli.terminal import Terminal, bars
from rivals.experiment.loop import Run
from rivals.learn.callbacks import Callback
from rivals.learn.method import StepResult
from rivals.learn.trainer import Trainer
from rivals.model.testing import plus_minus

MATRIX_TASKS = 10  # a longer stream is shown as two columns


class RunScreen(Callback):
    """Shows progress on a terminal; elsewhere only the tables at the end."""

    def __init__(self, quiet: bool = False) -> None:
        self.console, self.messages = Terminal(quiet=quiet), Terminal(stderr=True)
        self.interactive = self.console.is_terminal and not quiet
        self.progress: Progress | None = None
        self.bar: TaskID | None = None
        self.correct = self.seen = 0
        self.tasks = 0

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Show the progress bar while the run goes on."""
        if not self.interactive:
            yield
            return
        with bars(self.console, TimeRemainingColumn()) as self.progress:
            yield

    def on_run_begin(self, run: Run) -> None:
        self.tasks = len(run.stream)

    def on_task_begin(self, trainer: Trainer) -> None:
        task, method = trainer.task.name, trainer.method
        self.correct = self.seen = 0
        if self.progress is None:
            return
        number = len([name for name in method.known if name != task]) + 1
        if self.bar is not None:
            self.progress.remove_task(self.bar)
        text = f"task {number}/{self.tasks} {task}"
        self.bar = self.progress.add_task(text, total=None, note="")

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        method, at = trainer.method, trainer.method.position
        if self.progress is None or self.bar is None:
            return
        if at.batch == 1:  # accuracy is that of the current epoch
            self.correct = self.seen = 0
        self.correct, self.seen = self.correct + result.correct, self.seen + result.seen
        temperature = getattr(method, "temperature", None)
        tau = f"τ {temperature():.2f}  " if temperature and method.phase != "settled" else ""
        accuracy = 100 * self.correct / self.seen
        numbers = f"loss {result.loss:.3f}  accuracy {accuracy:.1f} %  {tau}"
        self.progress.update(self.bar, completed=at.step, total=at.steps, note=numbers)

    def on_results(self, run: Run) -> None:
        """One line after each task: its accuracy and the size of its ticket."""
        if not self.interactive or run.item is None:
            return
        content = run.results.content
        task, kept = content["tasks"][-1], content["summary"]["retained"]
        ticket, number = task["ticket"], len(content["tasks"])
        images = len(run.item.test)
        self.console.print(
            f"task {number}/{self.tasks} {task['name']}: "
            f"accuracy {plus_minus(task['accuracy'], images)} of {images:,} images, "
            f"keeps {ticket['weights']:,} weights "
            f"({kept['effective']:.1f} % of the network), {ticket['bytes']:,} bytes",
            soft_wrap=True,
        )

    def message(self, text: str) -> None:
        self.messages.print(text, soft_wrap=True)

    def report(self, content: Mapping[str, Any], folder: Path) -> None:
        """The accuracy matrix, the summary, and where the files are."""
        show_results(content, self.console)
        self.console.print(
            f"Results are in {folder / 'results.json'}, tickets in {folder / 'tickets'}.",
            soft_wrap=True,
        )


def show_results(content: Mapping[str, Any], console: Console) -> None:
    """The accuracy matrix and the summary of a run."""
    subset = f" · {content['subset']}" if content["subset"] else ""
    start = content.get("ancestor")
    method = f"{content['method']}, pretrained ({start['name']})" if start else content["method"]
    console.print(f"accuracy %, task known · {method}{subset}", soft_wrap=True)
    console.print(accuracy_table(content))
    console.print(summary_table(content))


def accuracy_table(content: Mapping[str, Any]) -> Table:
    """Accuracy with the task known: a row after each task, or two columns for a long stream."""
    names = [task["name"] for task in content["tasks"]]
    rows = content["matrix"]
    if len(names) <= MATRIX_TASKS:
        return matrix_table(
            "after task", names, [[f"{value:.1f}" for value in row] for row in rows]
        )
    table = Table("task", box=box.SIMPLE, pad_edge=False)
    for head in ("when learned", "at the end"):
        table.add_column(head, justify="right")
    for number, name in enumerate(names):
        table.add_row(name, f"{rows[number][number]:.1f}", f"{rows[-1][number]:.1f}")
    return table


def summary_table(content: Mapping[str, Any]) -> Table:
    """The numbers of the paper's tables for this run."""
    summary, table = content["summary"], Table(show_header=False)
    accuracy, kept = summary["accuracy"], summary["retained"]
    inferred = accuracy["task_inferred"]
    lines = [
        ("accuracy, task known", f"{accuracy['task_known']:.1f} %"),
        ("accuracy, task unknown", "n/a" if inferred is None else f"{inferred:.1f} %"),
        ("forgetting (BTI)", f"{summary['bti']:.1f}"),
    ]
    chance = summary["overlap_by_chance"]
    if summary["overlap"] is not None and chance is not None:
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
