"""`rivals predict`: the class of pictures, from a model or from an exported file."""

from __future__ import annotations

import csv
import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TextIO, TypeAlias

import typer

from rivals.cli.options import SignatureOption, ThreadsOption, check_formats, check_threads
from rivals.errors import RivalsError
from rivals.io.reading import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rivals.answer import Answer
    from rivals.io.spectrogram import SoundSettings
    from rivals.naming.frame_filter import Evidence

BATCH = 64
IGNORED = {"thumbs.db", "desktop.ini"}
LINE = 10_000  # characters of a path or a sentence, at most
FIELDS = ("image", "task", "label", "confidence", "rejected", "error")


def predict(
    images: Annotated[
        list[str],
        typer.Argument(help="Pictures or sounds, or folders of them; - reads a list from stdin."),
    ],
    model: Annotated[Path, typer.Option(help="Folder of a model, or an exported file.")],
    task: Annotated[
        str | None, typer.Option(help="The task; default: the model finds it for each picture.")
    ] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Answer 'none of these' for unfamiliar pictures. P is the share of known "
            "pictures that may be rejected by mistake, e.g. 0.05.",
        ),
    ] = None,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream", help="The pictures are frames of one stream: the last ones answer together."
        ),
    ] = False,
    require_signature: SignatureOption = None,
    run_native: Annotated[
        bool,
        typer.Option(
            "--run-native",
            help="Compile and run code from MODEL on this machine, where MODEL is a folder of C or "
            "a .pte program. Only for exports that you trust.",
        ),
    ] = False,
    threads: ThreadsOption = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per picture.")
    ] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print one line of CSV per picture.")
    ] = False,
) -> int:
    """Print the class of each picture, its task, and the confidence."""
    check_formats(as_json, as_csv)
    check_threads(threads)
    opened = open_predictor(model, task, reject, threads, require_signature, run_native)
    predictor = StreamPredictor(opened, reject) if stream else opened
    writer = Json() if as_json else Csv(sys.stdout) if as_csv else Text(predictor.several)
    unreadable = 0
    for paths in _batches(find_files(images), 1 if stream else BATCH):
        unreadable += _predict(predictor, paths, writer)
    return 2 if unreadable else 0


class PicturePredictor(Protocol):
    """A model, or an exported file."""

    several: bool  # whether it has several tasks
    shape: tuple[int, int, int]
    scale: float  # the value of a white pixel
    sound: SoundSettings | None  # how sounds are read, where it takes some

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]: ...

    def evidence(self, images: NDArray[np.uint8]) -> list[Evidence]: ...


class ModelPredictor:
    """A model; it finds the task unless it is given."""

    scale = 255.0

    def __init__(
        self, path: Path, task: str | None, reject: float | None, threads: int,
        key: Path | None = None,
    ) -> None:  # fmt: skip
        gc.disable()  # the many objects of these imports all stay; looking for others takes 0.1 s
        import torch

        from rivals.model.model import Model

        gc.freeze()
        gc.enable()

        torch.set_num_threads(threads)
        self.model, self.task, self.reject = Model(path, require_signature=key), task, reject
        self.model.check(task, reject)
        self.several = len(self.model.tasks) > 1
        content = self.model.opened().description
        self.shape, self.sound = content.input_shape, content.sound

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]:
        return self.model.answers(images, self.task, self.reject)

    def evidence(self, images: NDArray[np.uint8]) -> list[Evidence]:
        return self.model.evidence(images, self.task, self.reject)


class ArtefactPredictor:
    """An exported file in its own runtime, without torch."""

    def __init__(
        self, path: Path, task: str | None, reject: float | None, threads: int,
        key: Path | None, run_native: bool,
    ) -> None:  # fmt: skip
        from rivals.edge.artefact import load

        if key is not None:
            from rivals.io import signatures

            signatures.check(path, key)
        self.artefact = load(path, threads, run_native)
        self.artefact.check(reject)
        self.reject, card = reject, self.artefact.card
        if task is not None and card.tasks != (task,):
            raise RivalsError(
                f"{path} answers for {printable(', '.join(card.tasks))}, not for '{task}' alone; "
                "leave out --task, or use the model's folder."
            )
        self.several, self.shape, self.scale = len(card.tasks) > 1, card.input_shape, card.scale
        self.sound = card.sound

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]:
        return self.artefact.answers(images, self.reject)

    def evidence(self, images: NDArray[np.uint8]) -> list[Evidence]:
        return self.artefact.evidence(images, self.reject)


class StreamPredictor:
    """Answers about the frames of one stream, each by the last ones together."""

    def __init__(self, predictor: PicturePredictor, reject: float | None = None) -> None:
        from rivals.naming.frame_filter import FrameFilter

        self.predictor, self.together = predictor, FrameFilter(reject)
        self.several, self.shape = predictor.several, predictor.shape
        self.scale, self.sound = predictor.scale, predictor.sound

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]:
        return [self.together(each) for each in self.predictor.evidence(images)]


AnyPredictor: TypeAlias = PicturePredictor | StreamPredictor


def open_predictor(
    model: Path, task: str | None, reject: float | None, threads: int, key: Path | None,
    run_native: bool,
) -> PicturePredictor:  # fmt: skip
    """A model or an exported file; torch is imported only for a model."""
    missing_model = not os.path.lexists(model) and not model.suffix
    if missing_model or (model.is_dir() and not _is_exported_folder(model)):
        return ModelPredictor(model, task, reject, threads, key)
    return ArtefactPredictor(model, task, reject, threads, key, run_native)


def _is_exported_folder(folder: Path) -> bool:
    from rivals.model.folder_kind import is_exported_folder  # here: exported files need none of it

    return is_exported_folder(folder)


def find_files(words: Iterable[str]) -> Iterator[str]:
    """Files by name, those inside folders in order, and those of the list on stdin."""
    for word in words:
        if word == "-":
            for line in sys.stdin:
                if line.strip():
                    yield from _files_of(line.rstrip("\r\n"))
        else:
            yield from _files_of(word)


def _files_of(word: str) -> Iterator[str]:
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


def _batches(paths: Iterable[str], size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    for path in paths:
        batch.append(path)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _predict(predictor: AnyPredictor, paths: list[str], writer: Any) -> int:
    """Write an answer for each path, in their order; returns how many could not be read."""
    import numpy as np

    from rivals.io.pictures import to_pixels

    read: dict[int, NDArray[np.uint8]] = {}
    errors: dict[int, str] = {}
    for number, path in enumerate(paths):
        try:
            read[number] = to_pixels(path, predictor.shape, predictor.scale, sound=predictor.sound)
        except RivalsError as error:
            errors[number] = str(error)
    answers = predictor.answers(np.stack(list(read.values()))) if read else []
    by_number = dict(zip(read, answers, strict=True))
    for number, path in enumerate(paths):
        if number in errors:
            writer.error(path, errors[number])
        else:
            writer.answer(path, by_number[number])
    sys.stdout.flush()
    return len(errors)


class Text:
    """For a person."""

    def __init__(self, several: bool) -> None:
        self.several = several

    def answer(self, image: str, answer: Answer) -> None:
        label = printable(answer.label)
        if answer.rejected:
            label = f"none of these  (most like {label})"
        where = f"  task {printable(answer.task)}" if self.several else ""
        print(f"{_shown(image)}: {label}  {100 * answer.confidence:.1f} %{where}")

    def error(self, image: str, sentence: str) -> None:
        print(f"rivals: {_shown(sentence)}", file=sys.stderr)


class Json:
    """For a program: one line per picture."""

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
        row = (_shown(image), _shown(answer.task), _shown(word), confidence, rejected, "")
        self.writer.writerow(row)

    def error(self, image: str, sentence: str) -> None:
        self.writer.writerow((_shown(image), "", "", "", "", _shown(sentence)))


def _shown(text: str) -> str:
    """One line, whole: names that are not valid text, or hold control codes, can be printed."""
    return printable(text.encode(errors="backslashreplace").decode(), LINE)
