"""`rivals predict`: what is on pictures, asked of a model or of an exported ticket."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TextIO

import typer

from rivals.errors import RivalsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rivals.answer import Answer

BATCH = 64
IGNORED = {"thumbs.db", "desktop.ini"}
FIELDS = ("image", "task", "label", "confidence", "rejected", "error")


def predict(
    images: Annotated[
        list[str], typer.Argument(help="Pictures or folders of them; - reads a list from stdin.")
    ],
    model: Annotated[Path, typer.Option(help="A model's folder, or an exported ticket.")],
    task: Annotated[str | None, typer.Option(help="The task; default: the likeliest.")] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Answer 'none of these' to what looks less familiar than all but a share P of "
            "the pictures held out at learning: 0.05 refuses about 5 % of the known ones.",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of the runtime.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for a picture.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A line of CSV for a picture.")] = False,
) -> int:
    """Say what is on each picture: its class, its task, and the confidence."""
    if as_json and as_csv:
        raise RivalsError("--json and --csv exclude each other; choose one.")
    if not 1 <= threads <= 1024:
        raise RivalsError(f"--threads is {threads}, but must be at least 1.")
    asked = _open(model, task, reject, threads)
    show = Json() if as_json else Csv(sys.stdout) if as_csv else Text(asked.several)
    bad = 0
    for some in _batches(found(images)):
        bad += _answer(asked, some, show)
    return 2 if bad else 0


class Answering(Protocol):
    """A model's folder or an exported ticket."""

    several: bool  # tasks
    shape: tuple[int, int, int]
    scale: float  # the value of white

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]: ...


class ModelAnswers:
    """A model's folder: names the task unless it is given."""

    scale = 255.0

    def __init__(self, path: Path, task: str | None, reject: float | None, threads: int) -> None:
        import torch

        from rivals.model.model import Model

        torch.set_num_threads(threads)
        self.model, self.task, self.reject = Model(path), task, reject
        self.model.check(task, reject)
        self.several = len(self.model.tasks) > 1
        self.shape = self.model.opened().description.input_shape

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]:
        return self.model.answers(images, self.task, self.reject)


class ArtefactAnswers:
    """An exported ticket, in its own runtime, without torch."""

    def __init__(self, path: Path, task: str | None, reject: float | None, threads: int) -> None:
        from rivals.edge.artefact import load

        if reject is not None:
            raise RivalsError(
                f"--reject needs a model's folder, which keeps what its pictures look like; "
                f"{path} is an exported artefact."
            )
        self.artefact = load(path, threads)
        card = self.artefact.card
        if task is not None and card.tasks != (task,):
            raise RivalsError(
                f"{path} answers for {', '.join(card.tasks)}, not for '{task}' alone; "
                "leave out --task, or ask the model."
            )
        self.several, self.shape, self.scale = len(card.tasks) > 1, card.input_shape, card.scale

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]:
        return self.artefact.answers(images)


def _open(model: Path, task: str | None, reject: float | None, threads: int) -> Answering:
    """Torch is imported only where there is a model's folder."""
    is_model = model.is_dir() and not (model / "card.json").exists()
    return (ModelAnswers if is_model else ArtefactAnswers)(model, task, reject, threads)


def found(words: Iterable[str]) -> Iterator[str]:
    """Files as they are named, those below folders in order, and those that a list names."""
    for word in words:
        if word == "-":
            for line in sys.stdin:
                if line.strip():
                    yield from _below(line.rstrip("\r\n"))
        else:
            yield from _below(word)


def _below(word: str) -> Iterator[str]:
    if not os.path.isdir(word):
        yield word
        return

    def refuse(error: OSError) -> None:
        raise RivalsError(f"{error.filename} cannot be read ({error.strerror}).") from error

    for folder, folders, files in os.walk(word, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and name.lower() not in IGNORED:
                yield os.path.join(folder, name)


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    for path in paths:
        some.append(path)
        if len(some) == BATCH:
            yield some
            some = []
    if some:
        yield some


def _answer(asked: Answering, paths: list[str], show: Any) -> int:
    """Show an answer for each path, in their order; gives how many could not be read."""
    import numpy as np

    from rivals.io.pictures import to_pixels

    read: dict[int, NDArray[np.uint8]] = {}
    errors: dict[int, str] = {}
    for number, path in enumerate(paths):
        try:
            read[number] = to_pixels(path, asked.shape, asked.scale)
        except RivalsError as error:
            errors[number] = str(error)
    answers = asked.answers(np.stack(list(read.values()))) if read else []
    by_number = dict(zip(read, answers, strict=True))
    for number, path in enumerate(paths):
        if number in errors:
            show.error(path, errors[number])
        else:
            show.answer(path, by_number[number])
    sys.stdout.flush()
    return len(errors)


class Text:
    """For a person."""

    def __init__(self, several: bool) -> None:
        self.several = several

    def answer(self, image: str, answer: Answer) -> None:
        label = answer.label
        if answer.rejected:
            label = f"none of these  (most like {label})"
        where = f"  task {answer.task}" if self.several else ""
        print(f"{_shown(image)}: {label}  {100 * answer.confidence:.1f} %{where}")

    def error(self, image: str, sentence: str) -> None:
        print(f"rivals: {_shown(sentence)}", file=sys.stderr)


class Json:
    """For a program: a line for a picture."""

    def answer(self, image: str, answer: Answer) -> None:
        label = None if answer.rejected else answer.label
        row = (image, answer.task, label, round(answer.confidence, 6), answer.rejected)
        print(json.dumps(dict(zip(FIELDS, row, strict=False))))

    def error(self, image: str, sentence: str) -> None:
        print(json.dumps({"image": image, "error": sentence}))


class Csv:
    """For a table."""

    def __init__(self, out: TextIO) -> None:
        self.writer = csv.writer(out, lineterminator="\n")
        self.writer.writerow(FIELDS)

    def answer(self, image: str, answer: Answer) -> None:
        word = "" if answer.rejected else answer.label
        confidence, rejected = f"{answer.confidence:.6f}", str(answer.rejected).lower()
        self.writer.writerow((_shown(image), answer.task, word, confidence, rejected, ""))

    def error(self, image: str, sentence: str) -> None:
        self.writer.writerow((_shown(image), "", "", "", "", _shown(sentence)))


def _shown(text: str) -> str:
    """Names that are no text can still be printed."""
    return text.encode(errors="backslashreplace").decode()
