"""What a person sees of learning: a bar with the time left, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

LISTED = 10  # files that are left out, shown one by one


class LearnScreen:
    """A watcher that shows progress where there is a terminal, and a summary everywhere."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        self.console = Console(highlight=False, markup=False, emoji=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[numbers]}", markup=False),
        )
        self.progress = Progress(
            *columns, console=self.console, transient=True, disable=not self.console.is_terminal
        )
        self.bar = self.progress.add_task("starting", total=None, numbers="")
        self.held = ""

    def __enter__(self) -> LearnScreen:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        handler = getattr(self, f"on_{event['event']}", None)
        if handler:
            handler(event)

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def on_reading(self, event: dict[str, Any]) -> None:
        numbers = f"{event['done']:,} of {event['of']:,}"
        self.progress.update(
            self.bar, description="reading", completed=event["done"], total=event["of"],
            numbers=numbers,
        )  # fmt: skip

    def on_fewer(self, event: dict[str, Any]) -> None:
        self.say(
            f"Learning from {event['images']:,} of {event['of']:,} pictures, chosen by chance: "
            "more do not fit into memory."
        )

    def on_left_out(self, event: dict[str, Any]) -> None:
        files = event["files"]
        self.say(f"Left out {len(files):,} file{'' if len(files) == 1 else 's'}:")
        for each in files[:LISTED]:
            why = each["why"]
            self.say(f"  {why}" if each["path"] in why else f"  {each['path']}: {why}")
        if len(files) > LISTED:
            self.say(f"  and {len(files) - LISTED:,} more (--json lists all)")

    def on_grows(self, event: dict[str, Any]) -> None:
        sizes = ", ".join(
            f"{a} → {b}" if a != b else f"{b}"
            for a, b in zip(event["before"], event["units"], strict=True)
        )
        self.say(f"Room ran short, so the network grew: rivals in a block, by layer: {sizes}.")

    def on_begins(self, event: dict[str, Any]) -> None:
        self.say(
            f"Learning '{event['task']}': {len(event['classes'])} classes, {event['images']:,} "
            f"pictures to learn from, {event['held']:,} held out."
        )

    def on_step(self, event: dict[str, Any]) -> None:
        phase = "competing" if event["competing"] else "training"
        numbers = f"{event['accuracy']:.0f} % right{self.held}, {event['seconds_left']:.0f} s left"
        self.progress.update(
            self.bar, description=phase, completed=event["step"], total=event["steps"],
            numbers=numbers,
        )  # fmt: skip

    def on_validation(self, event: dict[str, Any]) -> None:
        self.held = f", held out {event['accuracy']:.0f} %"

    def on_stopped(self, event: dict[str, Any]) -> None:
        self.progress.stop()
        Console(stderr=True, highlight=False, markup=False).print(
            "Stopped; the model is as it was.", soft_wrap=True
        )

    def on_done(self, event: dict[str, Any]) -> None:
        self.progress.stop()
        if not event["kept"]:
            self.say(
                f"The new pictures made it no better (before: {event['before']:.1f} % of those "
                "held out), so the model was left as it was."
            )
            return
        ends = {
            "planned": "",
            "no-longer-better": " Stopped early: the held-out pictures got no better.",
            "minutes": " Stopped early: the minutes are used up.",
        }
        before = "" if event["before"] is None else f" (before: {event['before']:.1f} %)"
        lowest = min(event["room"].values())
        self.say(
            f"{event['accuracy']:.1f} % of the {event['held']:,} held-out pictures are right"
            f"{before}.{ends[event['stopped']]}"
        )
        if event["repeated"]:
            self.say(f"{event['repeated']:,} pictures were there twice and counted once.")
        self.say(
            f"It took {event['seconds']:.0f} s and {event['bytes']:,} bytes; its ticket has "
            f"{event['weights']:,} weights. Free room: {100 * lowest:.0f} % in the fullest layer."
        )
        self.say(f"Ask it: rivals predict PICTURE --model {self.model}")
