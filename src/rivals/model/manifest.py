"""model.json: what a model folder holds. It is written last, so it decides what is there.

    {"format", "seed", "network", "input_shape", "units", "tasks": […], "sha256"}

A folder may come from elsewhere: all of it is checked before anything is built from it.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.io.files import digest
from rivals.model import limits

FORMAT = 1
NAME = "model.json"


@dataclass(frozen=True)
class TaskFacts:
    """What a model knows of one of its tasks, but for its tensors."""

    name: str
    classes: tuple[str, ...]
    images: int  # learned from
    held: int  # held out
    accuracy: float  # percent of those held out
    weights: int  # of its ticket
    bytes: int  # that it adds to the model's folder
    macs: int  # multiplications of its ticket for one picture
    seconds: float  # that learning took
    steps: int
    stopped: str  # why learning ended: planned, no-longer-better or minutes
    refined: int  # how often it was learned again
    inherited_from: tuple[str, ...]  # tasks whose weights it began with, the nearest first
    file: str = ""
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        facts = dataclasses.asdict(self)
        return {**facts, "classes": list(self.classes), "inherited_from": list(self.inherited_from)}


@dataclass(frozen=True)
class Description:
    """The content of model.json."""

    seed: int
    network: str
    widths: tuple[int, ...]
    rivals: int  # in a block, before any growth
    input_shape: tuple[int, int, int]
    units: tuple[int, ...]  # rivals in a block of each layer, now
    tasks: tuple[TaskFacts, ...] = ()

    def task(self, name: str) -> TaskFacts | None:
        return next((task for task in self.tasks if task.name == name), None)

    def to_bytes(self) -> bytes:
        content = {
            "format": FORMAT,
            "seed": self.seed,
            "network": {
                "name": self.network, "widths": list(self.widths), "units": self.rivals,
            },
            "input_shape": list(self.input_shape),
            "units": list(self.units),
            "tasks": [task.to_dict() for task in self.tasks],
        }  # fmt: skip
        content["sha256"] = checksum(content)
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def checksum(content: dict[str, Any]) -> str:
    """Of everything but itself; the same before writing and after reading."""
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return digest(json.dumps(rest).encode())


def exists(folder: Path) -> bool:
    return (folder / NAME).exists()


def read(folder: Path) -> Description:
    """The checked description of the model in `folder`."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            data = file.read(limits.DESCRIPTION + 1)
    except FileNotFoundError as error:
        raise RivalsError(
            f"{folder} holds no model; make one with `rivals learn FOLDER --model {folder}`."
        ) from error
    except OSError as error:
        raise RivalsError(f"The model {path} cannot be read ({error.strerror}).") from error
    if len(data) > limits.DESCRIPTION:
        raise damaged(folder, f"{NAME} is larger than any model's")
    try:
        content = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise damaged(folder, f"{NAME} is not valid JSON") from error
    if not isinstance(content, dict):
        raise damaged(folder, f"{NAME} holds no JSON object")
    if content.get("format") != FORMAT:
        raise RivalsError(
            f"The model {folder} has format {str(content.get('format'))[:20]}, and this version "
            f"reads {FORMAT}; use the version of rivals that wrote it."
        )
    return parse(folder, content)


def parse(folder: Path, content: dict[str, Any]) -> Description:
    """Check the content of model.json against its schema and its checksum."""
    stated = content.pop("sha256", None)
    problem = next(_schema().iter_errors(content), None)
    if problem is not None:
        where = "/".join(str(part) for part in problem.absolute_path) or "the whole"
        raise damaged(folder, f"{NAME} is not as it should be at {where[:80]}")
    if stated != checksum(content):
        raise damaged(folder, f"{NAME} has another checksum than it says")
    try:
        tasks = tuple(_facts(entry) for entry in content["tasks"])
    except (OverflowError, ValueError) as error:
        raise damaged(folder, f"{NAME} has numbers out of range") from error
    if len({task.name for task in tasks}) < len(tasks):
        raise damaged(folder, f"{NAME} names a task twice")
    network = content["network"]
    channels, height, width = (int(side) for side in content["input_shape"])
    return Description(
        int(content["seed"]),
        network["name"],
        tuple(int(width) for width in network["widths"]),
        int(network["units"]),
        (channels, height, width),
        tuple(int(units) for units in content["units"]),
        tasks,
    )


def _facts(entry: dict[str, Any]) -> TaskFacts:
    counts = ("images", "held", "weights", "bytes", "macs", "steps", "refined")
    texts = {**entry, **{name: int(entry[name]) for name in counts}}
    texts["classes"] = tuple(entry["classes"])
    texts["inherited_from"] = tuple(entry["inherited_from"])
    return TaskFacts(**texts)


@cache
def _schema() -> Any:
    import jsonschema

    text = (Path(__file__).parent / "model.schema.json").read_text()
    return jsonschema.Draft202012Validator(json.loads(text))


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def damaged(folder: Path, what: str) -> RivalsError:
    return RivalsError(
        f"The model {folder} is damaged: {what}; bring back a copy of the folder, or learn anew."
    )
