"""README.md of a folder of C: what a person with a device wants to know."""

from __future__ import annotations

from typing import Any

TARGETS = {
    "host": "the machine of the export",
    "cortex-m4": "Cortex-M4, with what it calls of the library",
    "aarch64": "Linux on aarch64",
}

README = """\
# Ticket for "{task}" in C

C99 without a heap: `ticket.c` and `ticket.h` are all that a program needs.

| | |
|---|---|
| classes | {classes} |
| input | {channels} × {height} × {width} {pixels}, channel by channel, row by row |
| accuracy, task known | {accuracy} |
| weights | {weights:,} ({bytes:,} bytes, float32) |

| bytes for | flash, with weights | static memory | stack |
|---|---|---|---|
{sizes}

Measured with `-O2`; `make size` measures again. Stack is that of `ticket_classify` and all it calls
but the library of C.

```c
#include "ticket.h"

float confidence;
int found = ticket_classify(image, &confidence); /* image: TICKET_PIXELS of ticket_pixel */
puts(ticket_classes[found]);
```

`make && ./ticket images.bin` runs the example: images one after the other in a file, a line for
each. `make cortex-m4` and `make aarch64` build it for these.
"""


def readme(facts: dict[str, Any]) -> str:
    channels, height, width = facts["input_shape"]
    scale = facts["preprocessing"]["scale"]
    accuracy = facts["accuracy"]
    sizes = [
        f"| {TARGETS[name]} | {found['flash']:,} | {found['ram']:,} | "
        f"{found.get('stack', 'not known'):,} |"
        for name, found in facts["sizes"].items()
    ]
    return README.format(
        task=facts["task"],
        classes=", ".join(facts["classes"]),
        channels=channels, height=height, width=width,
        pixels=f"bytes, {scale:g} being white" if facts["raw_input"] else "prepared float32",
        accuracy="not measured" if accuracy is None else f"{accuracy:.1f} %",
        weights=facts["weights"], bytes=4 * facts["weights"],
        sizes="\n".join(sizes) or "| (no compiler at hand) | | | |",
    )  # fmt: skip
