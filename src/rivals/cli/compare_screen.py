"""What a person sees of a comparison: a bar for all, a line for each run at work, a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from rivals.experiment.grid.comparison import Outcome
    from rivals.experiment.grid.engine import Progress as Step
    from rivals.experiment.grid.expectations import Verdict
    from rivals.experiment.grid.grid_file import Planned


class CompareScreen:
    """An onlooker: bars where there is a terminal, a line for each run that ends elsewhere."""

    def __init__(self, runs: list[Planned], out: Path, quiet: bool = False) -> None:
        self.console = Console(quiet=quiet, highlight=False, markup=False, emoji=False)
        self.messages = Console(
            stderr=True, quiet=quiet, highlight=False, markup=False, emoji=False
        )
        self.lively = self.console.is_terminal and not quiet
        self.runs, self.out = runs, out
        self.over = 0
        self.progress: Progress | None = None
        self.bars: dict[Planned, TaskID] = {}
        self.shares: dict[Planned, float] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the bars on screen while runs go on."""
        if not self.lively:
            yield
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as self.progress:
            self.whole = self.progress.add_task("all runs", total=len(self.runs), note="")
            yield
        self.progress = None

    def began(self, run: Planned) -> None:
        if self.progress:
            self.bars[run] = self.progress.add_task(run.folder, total=1.0, note="starts")

    def goes_on(self, progress: Step) -> None:
        self.shares[progress.run] = progress.share
        if self.progress and progress.run in self.bars:
            note = f"task {progress.number}/{progress.tasks} {progress.task}"
            bar = self.bars[progress.run]
            self.progress.update(bar, completed=progress.share, note=note)
        self._whole()

    def ended(self, outcome: Outcome) -> None:
        self.over += 1
        self.shares.pop(outcome.run, None)
        bar = self.bars.pop(outcome.run, None)
        if self.progress and bar is not None:
            self.progress.remove_task(bar)
        self._whole()
        if outcome.how in ("kept", "waiting"):
            return
        line = f"{self.over}/{len(self.runs)} {outcome.run.folder}: {self._words(outcome)}"
        self.console.print(line, soft_wrap=True)

    def stopping(self) -> None:
        self.messages.print("Stopping: the runs at work are being saved.", soft_wrap=True)

    def _whole(self) -> None:
        if self.progress:
            done = self.over + sum(self.shares.values())
            note = f"{self.over} of {len(self.runs)} done"
            self.progress.update(self.whole, completed=done, note=note)

    def _words(self, outcome: Outcome) -> str:
        if outcome.how == "finished":
            time = "" if outcome.seconds is None else f" after {outcome.seconds:,.0f} s of training"
            return f"{outcome.accuracy:.1f} % right{time}"
        return f"{outcome.how}: {outcome.reason}" if outcome.reason else outcome.how

    def report(self, outcomes: list[Outcome], wall: float, busy: float, workers: int) -> None:
        """A row for each run; what failed, and the command that shows why; what to do next."""
        table = Table("run", "", title="accuracy with the task known")
        for head in ("accuracy %", "training s"):
            table.add_column(head, justify="right")
        for outcome in outcomes:
            accuracy = "" if outcome.accuracy is None else f"{outcome.accuracy:.1f}"
            seconds = "" if outcome.seconds is None else f"{outcome.seconds:,.1f}"
            table.add_row(outcome.run.folder, outcome.how, accuracy, seconds)
        self.console.print(table)
        hows = [outcome.how for outcome in outcomes]
        counts = ", ".join(f"{hows.count(how)} {how}" for how in dict.fromkeys(hows))
        ran = busy > 0
        spent = f" in {wall:,.0f} s; {workers} workers, busy {busy:.0f} % of it" if ran else ""
        self.console.print(f"{len(outcomes)} runs: {counts}{spent}.", soft_wrap=True)
        for outcome in outcomes:
            if outcome.how == "failed":
                self.messages.print(
                    f"{outcome.run.folder} failed: {outcome.reason}\n"
                    f"  alone: {outcome.run.command(self.out)}",
                    soft_wrap=True,
                )
        if "stopped" in hows or "waiting" in hows:
            self.messages.print("The same command goes on where it stopped.")
        elif "failed" not in hows:
            self.console.print(f"Tables and plots: rivals report {self.out}", soft_wrap=True)

    def bands(self, verdicts: list[Verdict]) -> None:
        """What was expected and what was reached, where a grid says so."""
        if not verdicts:
            return
        table = Table("run", "measure", "expected", title="expected")
        for head in ("reached", ""):
            table.add_column(head, justify="right")
        for each in verdicts:
            held = "" if each.holds else "outside"
            words = (each.run.folder, each.band.measure, str(each.band), f"{each.value:.1f}", held)
            table.add_row(*words)
        self.console.print(table)
        outside = sum(not each.holds for each in verdicts)
        if outside:
            self.messages.print(f"{outside} of {len(verdicts)} are not as expected.")
