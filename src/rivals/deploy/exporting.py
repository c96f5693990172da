"""Export from a folder: find the ticket or the whole model, write it, compare, remember."""

from __future__ import annotations

from pathlib import Path

from rivals.deploy.export_format import Options, formats
from rivals.deploy.export_record import remember
from rivals.deploy.exported import Exported, export, export_whole
from rivals.deploy.output_path import check_place
from rivals.deploy.ticket_source import find, find_whole
from rivals.errors import RivalsError
from rivals.streams.picture_data import PictureData

ENDINGS = {".onnx": "onnx", ".ort": "ort", ".tflite": "litert", ".pte": "executorch"}


def export_from(
    folder: Path,
    out: Path,
    to: str | None = None,
    task: str | None = None,
    images: PictureData | None = None,
    float_input: bool = False,
    all_tasks: bool = False,
    runtime: Path | None = None,
) -> Exported:
    """Write a ticket of a model, a run or a ticket folder for a runtime, the same answers or
    nothing."""
    to = to or _by_ending(out)
    formats[to].check_installed(to)
    check_place(out, formats[to].suffix)
    _check_page(to, float_input, runtime)
    options = Options(not float_input, runtime=None if runtime is None else Path(runtime))
    if all_tasks:
        _check_alone({"--task": task, "--images": images, "--float-input": float_input})
        return export_whole(find_whole(folder), to, out, options)
    made = export(find(folder, task, images), to, out, options)
    remember(folder, made)
    return made


def _by_ending(out: Path) -> str:
    if out.suffix not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise RivalsError(
            f"The format of {out} is not clear; choose one with --to, or an ending of {known}."
        )
    return ENDINGS[out.suffix]


def _check_page(to: str, float_input: bool, runtime: Path | None) -> None:
    if to != "web" and runtime is not None:
        raise RivalsError(f"--runtime is for --to web, and '{to}' has none inside; leave it out.")
    if to == "web" and float_input:
        raise RivalsError("A page gives its model the bytes of a picture; leave out --float-input.")


def _check_alone(words: dict[str, object]) -> None:
    for word, given in words.items():
        if given is not None and given is not False:
            raise RivalsError(
                f"{word} is for one ticket, and --all-tasks for all; leave out one of the two."
            )


def check_teachable(
    teachable: bool, to: str | None, others: dict[str, object], ancestor: str | None
) -> None:
    """Refuse words that go with a ticket beside those that go with a device that learns."""
    if not teachable:
        if ancestor is not None:
            raise RivalsError(
                "--ancestor is for a device that learns; add --to c --teachable, or leave it out."
            )
        return
    if to != "c":
        raise RivalsError("A device that learns is written in C alone; use --to c --teachable.")
    for word, given in others.items():
        if given is not None and given is not False:
            raise RivalsError(f"{word} is for one ticket, and --teachable for none; leave it out.")
