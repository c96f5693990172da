"""model.json: what a model folder holds. It is written last, so it decides what is there.

    {"format", "seed", "network", "input_shape", "units", "tasks", "moved", "history",
     "ancestor", "sha256"}, and "sound", how sounds are read, where the tasks have sounds

A folder may come from elsewhere: all of it is checked before anything is built from it. Types and
ranges stand in the fields of the classes here, where pydantic reads them.

Format 1 is that of rivals 0.1: it has no history, and every task lists all of its ancestors.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from os.path import lexists
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from rivals.errors import RivalsError
from rivals.io import signatures
from rivals.io.files import digest
from rivals.io.reading import UnreadableError, parse_json, printable, read_bytes
from rivals.io.spectrogram import SoundSettings
from rivals.model import limits
from rivals.model.history import PATTERN, BrokenHistoryError, ModelHistory

FORMAT = 2
FORMATS = (1, FORMAT)  # that are read
NAME = "model.json"
HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # hidden or turning signs
NEW = ModelHistory()
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def _shown(name: str) -> str:
    if not name.strip() or HIDDEN.search(name):
        raise ValueError("it cannot be shown")
    return name


def _known(network: str) -> str:
    if network not in limits.NETWORKS:
        raise ValueError("there is no such network")
    return network


Name = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_shown)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Side = Annotated[int, Field(ge=8, le=limits.SIDE)]
Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]
TaskFileName = Annotated[str, Field(pattern=r"^[0-9a-f]{16}\.safetensors\z")]
Bytes = Annotated[int, Field(ge=1, le=2**32)]
Words = Annotated[str, Field(max_length=limits.WORDS)]
Width = Annotated[int, Field(ge=1, le=limits.WIDTH)]
KnownNetwork = Annotated[str, AfterValidator(_known)]


@dataclass(frozen=True)
class TaskFacts:
    """What a model knows of one of its tasks, but for its tensors."""

    name: Name
    classes: Annotated[tuple[Name, ...], Field(min_length=2, max_length=limits.CLASSES)]
    images: Count  # learned from
    held: Count  # held out
    accuracy: Annotated[float, Field(ge=0, le=100)]  # percent of those held out
    weights: Count  # of its ticket
    bytes: Bytes  # that it adds to the model's folder
    macs: Count  # multiplications of its ticket for one picture
    seconds: Annotated[float, Field(ge=0)]  # that learning took
    steps: Count
    stopped: Annotated[str, Field(pattern=r"^(planned|no-longer-better|minutes)\z")]  # why it ended
    refined: Count  # how often it was learned again
    inherited_from: tuple[Name, ...]  # tasks whose weights it began with, the nearest first
    file: TaskFileName = ""
    sha256: Checksum = ""
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def to_dict(self) -> dict[str, Any]:
        facts = dataclasses.asdict(self)
        return {**facts, "classes": list(self.classes), "inherited_from": list(self.inherited_from)}


@dataclass(frozen=True)
class MovedEdges:
    """The file with edges that a dropped task had owned and others use."""

    file: TaskFileName
    sha256: Checksum
    bytes: Bytes
    __pydantic_config__: ClassVar[ConfigDict] = STRICT


@dataclass(frozen=True)
class AncestorName:
    """Which ancestor owns unit 0 of every block: one that is shipped, or a file of the model.

    A backbone of timm is a file of the model, too; it lies before all blocks and owns none.
    """

    name: Name
    sha256: Checksum
    file: TaskFileName | None = None
    bytes: Bytes | None = None
    timm: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,100}\z")] | None = None  # its architecture
    trained_on: Words = ""  # what its card says, where the card is not shipped
    terms: Words = ""
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class _Network:
    name: KnownNetwork
    widths: Annotated[tuple[Width, ...], Field(max_length=limits.WIDTHS)]
    units: Annotated[int, Field(ge=1, le=64)]
    __pydantic_config__: ClassVar[ConfigDict] = STRICT


@dataclass(frozen=True)
class _Content:
    """The keys of model.json, its checksum aside."""

    format: Annotated[int, Field(ge=min(FORMATS), le=max(FORMATS))]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    network: _Network
    input_shape: tuple[Literal[1, 3], Side, Side]
    units: Annotated[
        tuple[Annotated[int, Field(ge=1, le=limits.UNITS)], ...], Field(max_length=limits.LAYERS)
    ]
    tasks: Annotated[tuple[TaskFacts, ...], Field(max_length=limits.TASKS)]
    moved: MovedEdges | None = None
    history: Annotated[
        tuple[Annotated[str, Field(pattern=f"^({PATTERN.pattern})\\z")], ...],
        Field(max_length=limits.HISTORY),
    ] = ()
    ancestor: AncestorName | None = None
    sound: dict[str, int | float] | None = None  # checked by SoundSettings
    __pydantic_config__: ClassVar[ConfigDict] = STRICT


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
    moved: MovedEdges | None = None
    history: ModelHistory | None = NEW  # None: rivals 0.1 kept none
    ancestor: AncestorName | None = None
    sound: SoundSettings | None = None  # how all of its tasks read sounds; None: they see pictures

    def task(self, name: str) -> TaskFacts | None:
        return next((task for task in self.tasks if task.name == name), None)

    def files(self) -> set[str]:
        """The names of all files in the folder of tasks."""
        others = (each.file for each in (self.moved, self.ancestor) if each and each.file)
        return {*(task.file for task in self.tasks), *others}

    def total_bytes(self) -> int:
        """Of all these files."""
        others = (each.bytes or 0 for each in (self.moved, self.ancestor) if each)
        return sum(task.bytes for task in self.tasks) + sum(others)

    def to_bytes(self) -> bytes:
        assert self.history is not None
        # Of its ancestors a task names the nearest, which names the next one.
        tasks = [{**t.to_dict(), "inherited_from": list(t.inherited_from[:1])} for t in self.tasks]
        content: dict[str, Any] = {
            "format": FORMAT,
            "seed": self.seed,
            "network": {
                "name": self.network, "widths": list(self.widths), "units": self.rivals,
            },
            "input_shape": list(self.input_shape),
            "units": list(self.units),
            "tasks": tasks,
            "moved": vars(self.moved) if self.moved else None,
            "history": list(self.history.lines),
            "ancestor": self.ancestor.to_dict() if self.ancestor else None,
            **({"sound": self.sound.to_dict()} if self.sound else {}),
        }  # fmt: skip
        content["sha256"] = checksum(content)
        data = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
        if len(data) > limits.DESCRIPTION or len(tasks) > limits.TASKS:
            raise RivalsError(
                f"The model would have {len(tasks):,} tasks and a {NAME} of {len(data):,} bytes, "
                f"but at most {limits.TASKS:,} and {limits.DESCRIPTION:,} are read again; drop "
                "tasks, or begin another model."
            )
        return data


def checksum(content: dict[str, Any]) -> str:
    """Of everything but itself; the same before writing and after reading."""
    return digest(_text(content))


def _text(content: dict[str, Any]) -> bytes:
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return json.dumps(rest).encode()


def exists(folder: Path) -> bool:
    """Whether there is a model.json, which may be a link or anything else; reading it tells."""
    return lexists(folder / NAME)


def read(folder: Path, key: Path | None = None) -> Description:
    """The checked description of the model in `folder`, signed if a public `key` is given."""
    return parse(folder, read_raw(folder, key))


def read_raw(folder: Path, key: Path | None = None) -> bytes:
    """The bytes of model.json, signed if a public `key` is given."""
    try:
        data = read_bytes(folder / NAME, "model", limits.DESCRIPTION, folder)
    except UnreadableError as error:
        if folder.is_file():
            raise RivalsError(
                f"{folder} is a file, but a model is a folder; make one of a packed model with "
                f"`rivals unpack {folder} --model FOLDER`."
            ) from error
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        found = f"{folder} holds no model" if folder.exists() else f"There is no model {folder}"
        raise RivalsError(
            f"{found}; make one with `rivals learn FOLDER --model {folder}`."
        ) from error
    if key is not None:
        signatures.check(folder, key, {NAME: digest(data)})
    return data


def parse(folder: Path, data: bytes) -> Description:
    """Check the bytes of model.json: their checksum, all types and ranges, and what names what."""
    try:
        content = parse_json(data, NAME)
    except UnreadableError as error:
        raise damaged(
            folder, str(error).removesuffix(".").replace(" is damaged: it", "")
        ) from error
    if content.get("format") not in FORMATS:
        raise RivalsError(
            f"The model {folder} has format {printable(str(content.get('format')), 20)}, and this "
            f"version reads {' and '.join(map(str, FORMATS))}; use the version of rivals that "
            "wrote it."
        )
    if content.get("sha256") != checksum(content):
        raise damaged(folder, f"{NAME} has another checksum than it says")
    try:
        found = _content().validate_json(_text(content))
        _check_names(found)
        tasks = _with_ancestors(found.tasks)
        history = ModelHistory(found.history)
        sound = None if found.sound is None else SoundSettings.checked(found.sound)
        if found.format > 1 and len(history.now().marks) != len(tasks):
            raise BrokenHistoryError("its end")
    except ValidationError as error:
        place = "/".join(map(str, error.errors(include_url=False)[0]["loc"])) or "the whole"
        what = f"{NAME} is not as it should be at {printable(place, 80)}"
        raise damaged(folder, what) from error
    except BrokenHistoryError as error:
        raise damaged(folder, f"the history in {NAME} breaks off at {error}") from error
    except ValueError as error:
        raise damaged(folder, f"{NAME} {error}") from error
    network = found.network
    return Description(
        found.seed, network.name, network.widths, network.units, found.input_shape, found.units,
        tasks, found.moved, history if found.format > 1 else None, found.ancestor, sound,
    )  # fmt: skip


@cache
def _content() -> TypeAdapter[_Content]:
    return TypeAdapter(_Content)


def _check_names(found: _Content) -> None:
    """Nothing is there twice, and a file is named by its checksum."""
    files: list[TaskFacts | MovedEdges | AncestorName] = [*found.tasks]
    files += [found.moved] if found.moved else []
    if found.ancestor and (found.ancestor.file or found.ancestor.bytes):
        if not found.ancestor.bytes:
            raise ValueError("does not say how large the file of its ancestor is")
        files.append(found.ancestor)
    elif found.ancestor and found.ancestor.timm:
        raise ValueError("does not name the file of its ancestor")
    if len({task.name for task in found.tasks}) < len(found.tasks):
        raise ValueError("names a task twice")
    if len({each.sha256 for each in files}) < len(files):
        raise ValueError("names a file twice")  # memory would be taken for it many times
    if any(each.file != file_name(each.sha256) for each in files):
        raise ValueError("names a file by another checksum than its own")
    if any(len(set(task.classes)) < len(task.classes) for task in found.tasks):
        raise ValueError("names a class of a task twice")


def file_name(checksum: str) -> str:
    """The name of the file with this checksum."""
    return f"{checksum[:16]}.safetensors"


def _with_ancestors(tasks: tuple[TaskFacts, ...]) -> tuple[TaskFacts, ...]:
    """Every task with all its ancestors: the nearest, a task before it, and those of that one."""
    found: dict[str, TaskFacts] = {}
    for task in tasks:
        nearest = task.inherited_from[0] if task.inherited_from else None
        if nearest is not None and nearest not in found:
            raise ValueError("names an ancestor that is not there")
        older = (nearest, *found[nearest].inherited_from) if nearest is not None else ()
        found[task.name] = replace(task, inherited_from=older)
    return tuple(found.values())


def damaged(folder: Path, what: str) -> RivalsError:
    return RivalsError(
        f"The model {folder} is damaged: {what}; bring back a copy of the folder, or learn anew."
    )
