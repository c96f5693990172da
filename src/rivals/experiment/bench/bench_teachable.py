"""The rows of suite `edge` for teachable C, in floating point and in whole numbers.

    tiny ─► export ─► make ─► the example program is taught picture by picture

Seconds are processor time on this machine. Instructions are counted under emulation, on a board
with a Cortex-M4, which stands for energy: qemu knows no cycles.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import as_tensor

from rivals.deploy.teachable.spoken_device import Line, build, say, ticks, without_ticks
from rivals.deploy.teachable.teachable_export import ExportedTeachable, export_teachable
from rivals.experiment.bench.bench_row import Row, at_most

ANCESTOR = "tiny"
FLASH, MEMORY = 256 * 1024, 128 * 1024  # of a microcontroller
SHOWN = 4  # pictures of each kind on the emulated board, where every one costs the same
TICK = 40  # instructions of the emulated board
CLOCK = 1e6  # ticks of this machine in a second
BOARD = (
    "qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none",
    "-semihosting-config", "enable=on,target=native", "-icount", "shift=0", "-kernel",
)  # fmt: skip
KINDS = {"c-float": ("teach", "host"), "c-int8": ("teach-int8", "int8")}
# Name, classes, learned pictures (n, channels, height, width) and labels, tested ones and labels.
Lesson = tuple[str, Sequence[str], torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def c_rows(lessons: Sequence[Lesson]) -> Iterator[Row]:
    """Of lessons that are learned one after the other."""
    lessons = [
        (name, classes, as_tensor(learned), as_tensor(labels), as_tensor(tested), as_tensor(truth))
        for name, classes, learned, labels, tested, truth in lessons
    ]
    with tempfile.TemporaryDirectory() as room:
        device = export_teachable(Path(room) / "device", Path(room), ANCESTOR)
        for who, (program, target) in KINDS.items():
            build(device.path, target, CFLAGS="-O2 -DTEACH_TICKS")
            yield from _accuracy_and_time(device.path / program, lessons, who, Path(room) / who)
            yield from _host_size(device.path, program, who)
        yield from _microcontroller(device, lessons, Path(room) / "board")


def taught(lesson: Lesson) -> list[Line]:
    name, classes, images, labels, *_ = lesson
    return [
        Line(("learn", name, classes[label]), image)
        for image, label in zip(images, labels.tolist(), strict=True)
    ]


def asked(lesson: Lesson) -> list[Line]:
    return [Line(("predict",), image) for image in lesson[4]]


def _accuracy_and_time(
    program: Path, lessons: Sequence[Lesson], who: str, place: Path
) -> Iterator[Row]:
    lines: list[Line] = []
    right: list[list[str]] = []  # for every question the answer, or nothing for other commands
    for number, lesson in enumerate(lessons):
        lines += taught(lesson)
        right += [[]] * len(taught(lesson))
        for name, classes, _, _, images, labels in lessons[: number + 1]:
            lines += [Line(("predict",), image) for image in images]
            right += [[name, classes[label], str(number)] for label in labels.tolist()]
    answers = say([program], lines, place)
    found = without_ticks(answers)
    learned = sum(ticks(answers, "learn")) / CLOCK / sum(len(each[2]) for each in lessons)
    how = f"{ANCESTOR}, processor time on this machine"
    yield Row(f"edge-learn-seconds-{who}", 100 * learned, "s", None, f"100 pictures; {how}")
    answer = 1e3 * statistics.median(ticks(answers, "predict")) / CLOCK
    yield Row(f"edge-answer-ms-{who}", answer, "ms", None, how)
    for number in range(len(lessons)):
        hits = [
            line.split("\t")[:2] == wanted[:2]
            for line, wanted in zip(found, right, strict=True)
            if wanted and wanted[2] == str(number)
        ]
        yield Row(
            f"edge-accuracy-after-{number + 1}-{who}", 100 * statistics.mean(hits), "%", None,
            f"{len(hits)} test pictures of the tasks so far, task not given",
        )  # fmt: skip


def _host_size(folder: Path, program: str, who: str) -> Iterator[Row]:
    if shutil.which("size") is None:
        return
    text, data, bss = sizes("size", folder / program)
    how = "the example program on this machine"
    yield Row(f"edge-bytes-{who}", (text + data) / 1e3, "KB", None, f"code and weights; {how}")
    yield Row(f"edge-ram-{who}", (data + bss) / 1e3, "KB", None, f"static memory; {how}")


def sizes(tool: str, file: Path) -> tuple[int, int, int]:
    """Bytes of code, of data and of memory that starts as zero."""
    done = subprocess.run([tool, str(file)], capture_output=True, text=True, check=True)
    text, data, bss = map(int, re.findall(r"\d+", done.stdout.splitlines()[1])[:3])
    return text, data, bss


def _microcontroller(
    device: ExportedTeachable, lessons: Sequence[Lesson], place: Path
) -> Iterator[Row]:
    if not device.sizes:
        return
    how = "Cortex-M4, 20 classes, -O2"
    yield Row("edge-flash-c-int8", device.sizes["flash"] / 1024, "KB", at_most(FLASH / 1024), how)
    yield Row("edge-memory-c-int8", device.sizes["ram"] / 1024, "KB", at_most(MEMORY / 1024), how)
    if shutil.which(BOARD[0]) is None:
        return
    build(device.path, "cortex-m4", CFLAGS="-O2 -DTEACH_TICKS")
    first = lessons[0]
    lines = [*taught(first)[:SHOWN], *asked(first)[:SHOWN]]
    told = say([*BOARD, device.path / "teach-cortex-m4.elf"], lines, place)
    learned, answered = (
        TICK * statistics.median(ticks(told, verb)) for verb in ("learn", "predict")
    )
    how = "instructions of an emulated Cortex-M4"
    yield Row("edge-instructions-learn-c-int8", learned / 1e6, "million", None, how)
    yield Row("edge-instructions-answer-c-int8", answered / 1e6, "million", None, how)
    yield Row("edge-learn-per-answer-c-int8", learned / answered, "×", at_most(1.2), how)
