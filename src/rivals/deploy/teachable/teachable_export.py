"""`rivals export --to c --teachable`: an ancestor, or a model with one, as a device that learns.

teach.h, teach.c               learn, forget, predict, save, restore
features.c, layers.h           the frozen network, step by step
network.h, network_int8.c,     its sizes and its numbers, in whole numbers and in floating point
network_float.c
initial.c                      what the device knows from the start
example/, Makefile             a program for this machine, a Cortex-M4 and Linux on aarch64
card.json, README.md           what it is, for programs and for people
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from rivals.deploy.c import __name__ as ticket_program
from rivals.deploy.c.c_source import quoted
from rivals.deploy.export_format import write_card
from rivals.deploy.exported import size
from rivals.deploy.output_path import check_place, place
from rivals.deploy.teachable import __name__ as package
from rivals.deploy.teachable.calibrated_body import FloatFeatures
from rivals.deploy.teachable.compiled_features import CompiledFeatures
from rivals.deploy.teachable.dead_leaves import dead_leaves
from rivals.deploy.teachable.integer_features import IntegerFeatures
from rivals.deploy.teachable.network_text import (
    float_source,
    integer_source,
    network_header,
    wrapped,
)
from rivals.deploy.teachable.taught_state import TaughtState
from rivals.deploy.teachable.teachable_source import TeachableSource, of_ancestor, of_model
from rivals.edge.artefact_files import DEVICE_FILES
from rivals.edge.card import VERSION
from rivals.edge.runtime_c import compiler
from rivals.errors import RivalsError
from rivals.io.checksum import BLANK
from rivals.io.files import make_folder, write_bytes

PROGRAM = ("teach.h", "teach.c", "features.c", "layers.h", "Makefile")
EXAMPLE = ("main.c", "ticks.c", "alone.c")
COMPARED, OTHER_SEED = 8, 1  # pictures that were not calibrated with
NEAR = 8  # of 256 in a deviation: what features in floating point may differ by
SECONDS = 300

INITIAL = """\
/* What the device knows from the start. Written by rivals. */
#include "teach.h"

const teach_class teach_initial[{room}] = {{
{classes}
}};
const uint32_t teach_initial_count = {count};
"""

README = """\
# A device that learns

C99 without a heap: the ancestor `{ancestor}` for pictures of {channels} × {height} × {width} bytes,
channel by channel and row by row. It starts with {known}.

```c
#include "teach.h"

static teach_class room[20]; /* for 20 classes */
static teach_state state;

teach_start(&state, room, 20);
teach_learn(&state, image, sizeof image, "desk", "mug");
teach_answer answer;
teach_status status = teach_predict(&state, image, sizeof image, NULL, &answer);
puts(status == TEACH_OK ? answer.found->name : teach_message(status));
```

A firmware takes `teach.c`, `features.c`, `initial.c` and `network_int8.c`, with their headers;
Linux may take `network_float.c` and `-DTEACH_FLOAT`. `make && ./teach` runs the example,
`make int8`, `make cortex-m4` and `make aarch64` build it for others, `make size` measures.

{sizes}
"""


@dataclass(frozen=True)
class ExportedTeachable:
    """What was put in place."""

    path: Path
    ancestor: str
    input_shape: tuple[int, int, int]
    classes: tuple[tuple[str, str], ...]  # task and name, known from the start
    left_out: tuple[str, ...]  # tasks of the model that are no closed form
    bytes: int
    calibrated: str
    sizes: dict[str, int]  # flash and ram on a Cortex-M4, where its compiler is there
    compared: int  # pictures whose features are those of Python

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def export_teachable(
    out: Path, model: Path, ancestor: str | None = None, images: Path | None = None
) -> ExportedTeachable:
    """Write a device that learns; it is kept if its features are those of Python.

    Args:
        out: A folder that is not there yet, or an earlier export.
        model: The folder of a model, which is not looked at if there is an `ancestor`.
        ancestor: A name, or the folder of one.
        images: A folder of pictures, for the ranges of activations.
    """
    if compiler() is None:
        raise RivalsError(
            "Teachable C is run to be compared, which needs a C compiler, and none was found; "
            "install one, such as gcc, or name it in $CC."
        )
    check_place(out, "")
    found = of_model(model, images) if ancestor is None else of_ancestor(ancestor, images)
    with place(out) as path:
        make_folder(path)
        whole = IntegerFeatures(found.body)
        write_program(found, whole, path)
        compare(found, whole, path)
        sizes = measure(path)
        facts = {
            "rivals": VERSION,
            "ancestor": found.body.name,
            "input_shape": list(found.body.input_shape),
            "features": len(found.body.centre),
            "classes": [[each.task, each.name] for each in found.state.classes],
            "calibrated": found.calibrated,
            "sizes": sizes,
            "sha256": BLANK,
        }
        write_card(path / "card.json", facts, *((path / n).read_bytes() for n in DEVICE_FILES))
        write_bytes(path / "README.md", readme(found, sizes).encode())
    classes = tuple((each.task, each.name) for each in found.state.classes)
    return ExportedTeachable(
        out, found.body.name, found.body.input_shape, classes, found.left_out, size(out),
        found.calibrated, sizes, COMPARED,
    )  # fmt: skip


def write_program(found: TeachableSource, whole: IntegerFeatures, path: Path) -> None:
    """All sources; the card comes when they were tried."""
    texts = {
        "network.h": network_header(found.body, whole, len(found.state.classes)),
        "network_int8.c": integer_source(found.body, whole),
        "network_float.c": float_source(found.body),
        "initial.c": initial(found.state),
    }
    for name, text in texts.items():
        write_bytes(path / name, text.encode())
    own, ticket = files(package) / "program", files(ticket_program) / "example"
    make_folder(path / "example")
    for name in PROGRAM:
        write_bytes(path / name, (own / name).read_bytes())
    for name in EXAMPLE:
        write_bytes(path / "example" / name, (own / "example" / name).read_bytes())
    write_bytes(path / "example" / "board.c", (ticket / "board.c").read_bytes())


def initial(state: TaughtState) -> str:
    rows = [
        f"    {{{quoted(each.task)}, {quoted(each.name)}, {each.count}, {{\n"
        f"{wrapped(map(str, each.sums.tolist()))}}}}},"
        for each in state.classes
    ]
    return INITIAL.format(
        room=max(1, len(rows)), classes="\n".join(rows) or "    {{0}, {0}, 0, {0}},",
        count=len(rows),
    )  # fmt: skip


def compare(found: TeachableSource, whole: IntegerFeatures, path: Path) -> None:
    """Refuse C whose features are not those of Python: in whole numbers to the last bit."""
    images = dead_leaves(COMPARED, found.body.input_shape, OTHER_SEED)
    if not torch.equal(CompiledFeatures(path, len(found.body.centre))(images), whole(images)):
        raise RivalsError("The features of the C are not those of Python; this is a mistake of it.")
    floating = CompiledFeatures(path, len(found.body.centre), floating=True)(images)
    if int((floating - FloatFeatures(found.body)(images)).abs().max()) > NEAR:
        raise RivalsError(
            "The features of the C in floating point are not those of Python; this is a mistake of "
            "it."
        )


def measure(path: Path) -> dict[str, int]:
    """Bytes of flash and of memory on a Cortex-M4 with 20 classes; nothing without its compiler."""
    tools = [shutil.which(each) for each in ("make", "arm-none-eabi-gcc", "arm-none-eabi-size")]
    if None in tools:
        return {}
    with tempfile.TemporaryDirectory() as room:
        copy = shutil.copytree(path, Path(room) / "device")
        done = subprocess.run(
            ["make", "-s", "-C", str(copy), "size"], capture_output=True, text=True, timeout=SECONDS
        )
    if done.returncode != 0:
        return {}
    text, data, bss, *_ = (int(word) for word in done.stdout.splitlines()[1].split()[:3])
    return {"flash": text + data, "ram": data + bss}


def readme(found: TeachableSource, sizes: dict[str, int]) -> str:
    channels, height, width = found.body.input_shape
    names = ", ".join(f"{each.name} ({each.task})" for each in found.state.classes)
    words = "No compiler for a Cortex-M4 was at hand, so its sizes are not known."
    if sizes:
        words = (
            f"On a Cortex-M4 with 20 classes: {sizes['flash']:,} bytes of flash, "
            f"{sizes['ram']:,} bytes of memory."
        )
    return README.format(
        ancestor=found.body.name, channels=channels, height=height, width=width,
        known=f"these classes: {names}" if names else "no classes", sizes=words,
    )  # fmt: skip
