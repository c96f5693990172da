"""What a person sees of a comparison: progress bars, then tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress, TaskID, TimeElapsedColumn
from rich.table import Column, Table

from rivals.cli.terminal import Terminal, bars

if TYPE_CHECKING:
    from rivals.experiment.grid.comparison import Outcome
    from rivals.experiment.grid.engine import Progress as Step
    from rivals.experiment.grid.expectations import Verdict
    from rivals.experiment.grid.grid_file import PlannedRun
    from rivals.experiment.grid.variants import Variant


class CompareScreen:
    """Progress bars on a terminal; elsewhere a line for each run that ends."""

    def __init__(self, runs: list[PlannedRun], out: Path, quiet: bool = False) -> None:
        self.console, self.messages = Terminal(quiet=quiet), Terminal(stderr=True, quiet=quiet)
        self.interactive = self.console.is_terminal and not quiet
        self.runs, self.out = runs, out
        kinds = dict.fromkeys(run.on for run in runs)
        self.images = " and ".join(f"{kind} images" for kind in kinds)
        self.ended_runs = 0
        self.progress: Progress | None = None
        self.bars: dict[PlannedRun, TaskID] = {}
        self.shares: dict[PlannedRun, float] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Show the bars while there are runs."""
        if not self.interactive:
            yield
            return
        with bars(self.console, TimeElapsedColumn()) as self.progress:
            self.whole = self.progress.add_task("all runs", total=len(self.runs), note="")
            yield
        self.progress = None

    def started(self, run: PlannedRun) -> None:
        if self.progress:
            self.bars[run] = self.progress.add_task(run.folder, total=1.0, note="starting")

    def progressed(self, progress: Step) -> None:
        self.shares[progress.run] = progress.share
        if self.progress and progress.run in self.bars:
            note = f"task {progress.number}/{progress.tasks} {progress.task}"
            bar = self.bars[progress.run]
            self.progress.update(bar, completed=progress.share, note=note)
        self._whole()

    def ended(self, outcome: Outcome) -> None:
        self.ended_runs += 1
        self.shares.pop(outcome.run, None)
        bar = self.bars.pop(outcome.run, None)
        if self.progress and bar is not None:
            self.progress.remove_task(bar)
        self._whole()
        if outcome.status in ("kept", "waiting"):
            return
        line = f"{self.ended_runs}/{len(self.runs)} {outcome.run.folder}: {self._result(outcome)}"
        self.console.print(line, soft_wrap=True)

    def stopping(self) -> None:
        self.messages.print("Stopping: the active runs are being saved.", soft_wrap=True)

    def _whole(self) -> None:
        if self.progress:
            done = self.ended_runs + sum(self.shares.values())
            note = f"{self.ended_runs} of {len(self.runs)} done"
            self.progress.update(self.whole, completed=done, note=note)

    def _result(self, outcome: Outcome) -> str:
        if outcome.status == "finished":
            time = "" if outcome.seconds is None else f" after {outcome.seconds:,.0f} s of training"
            return f"accuracy {outcome.accuracy:.1f} %{time}"
        return f"{outcome.status}: {outcome.reason}" if outcome.reason else outcome.status

    def report(self, outcomes: list[Outcome], wall: float, busy: float, workers: int) -> None:
        """A row for each run; for a failed one the command that runs it alone."""
        table = Table(
            Column("run", overflow="fold"), "", title=f"accuracy with the task known, {self.images}"
        )
        for head in ("accuracy %", "training s"):
            table.add_column(head, justify="right")
        for outcome in outcomes:
            accuracy = "" if outcome.accuracy is None else f"{outcome.accuracy:.1f}"
            accuracy += " *" if outcome.ancestor else ""
            seconds = "" if outcome.seconds is None else f"{outcome.seconds:,.1f}"
            table.add_row(outcome.run.folder, outcome.status, accuracy, seconds)
        self.console.print(table)
        self._pretrained({outcome.ancestor for outcome in outcomes if outcome.ancestor})
        statuses = [outcome.status for outcome in outcomes]
        counts = ", ".join(f"{statuses.count(each)} {each}" for each in dict.fromkeys(statuses))
        ran = busy > 0
        spent = f" in {wall:,.0f} s; {workers} workers, busy {busy:.0f} % of it" if ran else ""
        self.console.print(f"{len(outcomes)} runs: {counts}{spent}.", soft_wrap=True)
        for outcome in outcomes:
            if outcome.status == "failed":
                failed = f"{outcome.run.folder} failed: {outcome.reason}"
                self.messages.print(failed, soft_wrap=True)
                alone = outcome.run.command(self.out)
                self.messages.print(f"  alone: {alone}", soft_wrap=True)

    def _pretrained(self, ancestors: set[str]) -> None:
        """Nobody is to compare what starts from a trained network with what does not."""
        if ancestors:
            names = ", ".join(sorted(ancestors))
            self.console.print(
                f"* pretrained: starts from a network that was trained before ({names}); the "
                "others start from random weights.",
                soft_wrap=True,
            )

    def next_step(self, outcomes: list[Outcome]) -> None:
        """What to do now."""
        statuses = [outcome.status for outcome in outcomes]
        if "stopped" in statuses or "waiting" in statuses:
            self.messages.print("The same command continues where it stopped.")
        elif "failed" not in statuses:
            self.console.print(f"Tables and plots: rivals report {self.out}", soft_wrap=True)

    def variants(self, rows: list[Variant]) -> None:
        """A row for each variant, where there are several: means over seeds, and differences."""
        if len(rows) < 2:
            return
        for place in dict.fromkeys((row.benchmark, row.on) for row in rows):
            own = [row for row in rows if (row.benchmark, row.on) == place]
            title = f"{place[0]}, {place[1]} images; differences to {own[0].label}, seed by seed"
            table = Table(Column("variant", overflow="fold"), title=title)
            for head in ("seeds", "accuracy %", "difference", "kB", "training s"):
                table.add_column(head, justify="right")
            for row in own:
                cells = row.row()
                cells["seeds"] = str(len(row.seeds))
                names = ("variant", "seeds", "accuracy", "difference", "kilobytes", "seconds")
                table.add_row(*(cells[name] for name in names))
            self.console.print(table)

    def explain_seeds(self, seeds: str) -> None:
        """One number is a seed, not how many there are."""
        if seeds.strip().isdigit() and int(seeds) > 1:
            self.console.print(
                f"--seeds {seeds} means seed {seeds} alone; for {seeds} seeds write "
                f"--seeds 0-{int(seeds) - 1}.",
                soft_wrap=True,
            )

    def bands(self, verdicts: list[Verdict]) -> None:
        """Expected and measured values, where a grid has some."""
        if not verdicts:
            return
        table = Table(
            Column("run", overflow="fold"), "measure", "expected", title="expected values"
        )
        for head in ("measured", ""):
            table.add_column(head, justify="right")
        for each in verdicts:
            held = "" if each.holds else "outside"
            words = (each.run.folder, each.band.measure, str(each.band), f"{each.value:.1f}", held)
            table.add_row(*words)
        self.console.print(table)
        outside = sum(not each.holds for each in verdicts)
        if outside:
            self.messages.print(
                f"{outside} of {len(verdicts)} values are outside the expected range."
            )
