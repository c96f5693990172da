"""What a person sees of learning: a progress bar, then a summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rivals.cli.terminal import Terminal, bars
from rivals.model.testing import plus_minus

MOST_FILES = 10  # skipped files that are listed
REASONS = {
    "planned": "",
    "no-longer-better": " Stopped early: the accuracy no longer improved.",
    "minutes": " Stopped early: the time limit was reached.",
}


class LearnScreen:
    """Shows a progress bar on a terminal, and a summary everywhere."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.console = Terminal()
        self.progress = bars(self.console, width=30)
        self.bar = self.progress.add_task("starting", total=None, note="")
        self.held = 0  # pictures
        self.validation = ""

    def __enter__(self) -> LearnScreen:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        handler = getattr(self, f"on_{event['event']}", None)
        if handler:
            handler(event)

    def print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def on_reading(self, event: dict[str, Any]) -> None:
        numbers = f"{event['done']:,} of {event['of']:,}"
        self.progress.update(
            self.bar, description="reading", completed=event["done"], total=event["of"],
            note=numbers,
        )  # fmt: skip

    def on_fewer(self, event: dict[str, Any]) -> None:
        self.print(
            f"Learning from {event['images']:,} of {event['of']:,} pictures, chosen at random: "
            "more do not fit into memory."
        )

    def on_left_out(self, event: dict[str, Any]) -> None:
        files = event["files"]
        self.print(f"Skipped {len(files):,} file{'' if len(files) == 1 else 's'}:")
        for each in files[:MOST_FILES]:
            why = each["why"]
            self.print(f"  {why}" if each["path"] in why else f"  {each['path']}: {why}")
        if len(files) > MOST_FILES:
            self.print(f"  and {len(files) - MOST_FILES:,} more (--json lists all)")

    def on_grows(self, event: dict[str, Any]) -> None:
        sizes = ", ".join(
            f"{before} → {after}" if before != after else f"{after}"
            for before, after in zip(event["before"], event["units"], strict=True)
        )
        self.print(f"The network was nearly full and grew; units of a block, by layer: {sizes}.")

    def on_begins(self, event: dict[str, Any]) -> None:
        self.held = event["held"]
        what = f"Learning '{event['task']}': {len(event['classes'])} classes, {event['images']:,} "
        if event["steps"]:
            what += f"pictures for training, {event['held']:,} held out to measure accuracy."
        else:  # a head in closed form
            what += "pictures; each is tested without having been learned (cross-validation)."
        self.print(what)

    def on_step(self, event: dict[str, Any]) -> None:
        phase = "competing" if event["competing"] else "training"
        numbers = (
            f"accuracy {event['accuracy']:.0f} %{self.validation}, "
            f"{event['seconds_left']:.0f} s left"
        )
        self.progress.update(
            self.bar, description=phase, completed=event["step"], total=event["steps"],
            note=numbers,
        )  # fmt: skip

    def on_validation(self, event: dict[str, Any]) -> None:
        self.validation = f", held out {plus_minus(event['accuracy'], self.held)}"

    def on_stopped(self, event: dict[str, Any]) -> None:
        self.progress.stop()
        Terminal(stderr=True).print("Stopped; the model was not changed.", soft_wrap=True)

    def on_done(self, event: dict[str, Any]) -> None:
        self.progress.stop()
        if not event["kept"]:
            self.print(
                "The model was not changed: with the new pictures, accuracy on the held-out ones "
                f"fell below the {event['before']:.1f} % it had before."
            )
            return
        advice = event.get("advice") or {}
        before = "" if event["before"] is None else f" (before: {event['before']:.1f} %)"
        how = f"on {event['held']:,} held-out pictures"
        if advice.get("cross_validated"):
            how = f"in cross-validation of {event['held']:,} pictures"
        self.print(
            f"Accuracy {plus_minus(event['accuracy'], event['held'])} {how}{before}."
            f"{REASONS[event['stopped']]}"
        )
        for sentence in advice.get("sentences", {}).values():
            self.print(sentence)
        if event["repeated"]:
            self.print(f"{event['repeated']:,} pictures occurred twice and were used once.")
        self.print(
            f"It took {event['seconds']:.0f} s and {event['bytes']:,} bytes; the ticket has "
            f"{event['weights']:,} weights. Free weights in the fullest layer: "
            f"{100 * min(event['room'].values()):.0f} %."
        )
        if event["unsigned"]:
            self.print(f"The signature was removed: {self.model} is no longer what was signed.")
        self.print(f"Next: rivals predict PICTURE --model {self.model}")
