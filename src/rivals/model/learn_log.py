"""The log of learning one task: its steps, and at the end what came of it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from rivals.learn.training_log import TrainingLog
from rivals.model.events import Event, Listener

FACTS = ("accuracy", "bytes", "weights", "macs", "seconds")  # of the task, from the last event


def log_folder(model: Path, task: str) -> Path:
    """Beside the model, whose own folder holds nothing but the model; no name leads out of it."""
    place = model if model.name else model.resolve()
    return place.with_name(f"{place.name}-log") / quote(task, safe=" ").replace(".", "%2E")


class LearnLog(TrainingLog):
    """A training log that hears what learning says: checks on held-out pictures, and the end."""

    def heard(self, listener: Listener) -> Listener:
        """The listener, after the log has heard the same."""

        def hear(event: Event) -> None:
            if event["event"] == "validation":
                self.note(validation_accuracy=event["accuracy"])
            if event["event"] == "done" and self.loggers:
                if not self.begun:  # a head in closed form takes no step
                    self.begin({"task": event["name"]}, 0)
                values = {name: event[name] for name in FACTS}
                self.log("tasks", values, sum(self.steps.values()))
            listener(event)

        return hear
