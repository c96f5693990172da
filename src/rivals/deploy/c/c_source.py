"""ticket.h and ticket.c: what a program calls, and how a pass goes through the layers."""

from __future__ import annotations

import numpy as np

from rivals.deploy.c.c_network import IMAGE, SCORES, CNetwork, CStep
from rivals.deploy.c.static_memory import Memory, plan
from rivals.deploy.export_format import Options
from rivals.tickets.ticket import Ticket

HEADER = """\
/* A ticket: a small network that tells classes of images apart. C99, no heap. Written by rivals. */
#ifndef TICKET_H
#define TICKET_H

#include <stdint.h>

#define TICKET_TASK {task}
#define TICKET_CHANNELS {channels}
#define TICKET_HEIGHT {height}
#define TICKET_WIDTH {width}
#define TICKET_PIXELS (TICKET_CHANNELS * TICKET_HEIGHT * TICKET_WIDTH)
#define TICKET_CLASSES {classes}
#define TICKET_WEIGHTS {weights}

/* Pixels lie channel by channel, row by row. {pixels} */
typedef {type} ticket_pixel;

/* The names of the classes, in UTF-8. */
extern const char *const ticket_classes[TICKET_CLASSES];

/* The score of every class, the largest being the likeliest. Keeps what is between the layers in
   static memory ({memory} bytes), so only one call at a time; compile with -DTICKET_MEMORY= to have
   it on the stack instead, or with -DTICKET_MEMORY='static __attribute__((section(".ram2")))'. */
void ticket_scores(const ticket_pixel image[TICKET_PIXELS], float scores[TICKET_CLASSES]);

/* The number of the likeliest class, and its confidence (0 to 1) unless `confidence` is NULL. */
int ticket_classify(const ticket_pixel image[TICKET_PIXELS], float *confidence);

#endif
"""

SOURCE = """\
/* A ticket, written by rivals; its layers by emx-onnx-cgen. See ticket.h. */
#include "ticket.h"

#include <stddef.h>
{layers}
#ifndef TICKET_MEMORY
#define TICKET_MEMORY static
#endif

const char *const ticket_classes[TICKET_CLASSES] = {{
{names}
}};

void ticket_scores(const ticket_pixel image[TICKET_PIXELS], float scores[TICKET_CLASSES]) {{
    TICKET_MEMORY float memory[{floats}];
{prepare}
{calls}
}}

int ticket_classify(const ticket_pixel image[TICKET_PIXELS], float *confidence) {{
    float scores[TICKET_CLASSES];
    int best = 0;
    ticket_scores(image, scores);
    for (int i = 1; i < TICKET_CLASSES; ++i) {{
        if (scores[i] > scores[best]) {{
            best = i;
        }}
    }}
    if (confidence != NULL) {{
        float sum = 0.0f;
        for (int i = 0; i < TICKET_CLASSES; ++i) {{
            sum += expf(scores[i] - scores[best]);
        }}
        *confidence = 1.0f / sum;
    }}
    return best;
}}
"""

PREPARE = """\
    static const float factor[TICKET_CHANNELS] = {{{factor}}};
    static const float offset[TICKET_CHANNELS] = {{{offset}}};
    for (int c = 0; c < TICKET_CHANNELS; ++c) {{
        for (int i = 0; i < TICKET_HEIGHT * TICKET_WIDTH; ++i) {{
            const int at = c * TICKET_HEIGHT * TICKET_WIDTH + i;
            memory[{start} + at] = (float)image[at] * factor[c] - offset[c];
        }}
    }}"""


def header(ticket: Ticket, network: CNetwork, options: Options) -> str:
    channels, height, width = ticket.input_shape
    scale = ticket.preprocessing.scale
    raw = f"Bytes as they were learned, {scale:g} being white; they are prepared inside."
    return HEADER.format(
        task=quoted(ticket.task), channels=channels, height=height, width=width,
        classes=len(ticket.classes), weights=network.weights,
        pixels=raw if options.raw_input else "Prepared: (pixel / scale - mean) / deviation.",
        type="uint8_t" if options.raw_input else "float",
        memory=4 * plan(network, options.raw_input).floats,
    )  # fmt: skip


def source(ticket: Ticket, network: CNetwork, options: Options) -> str:
    memory = plan(network, options.raw_input)
    names = {name: f"(memory + {start})" for name, start in memory.starts.items()}
    names[SCORES] = "scores"
    names.setdefault(IMAGE, "image")
    return SOURCE.format(
        layers=network.layers,
        names=",\n".join(f"    {quoted(name)}" for name in ticket.classes),
        floats=memory.floats,
        prepare=_prepare(ticket, memory) if options.raw_input else "",
        calls="\n".join(_call(step, network, names) for step in network.steps),
    )


def _call(step: CStep, network: CNetwork, names: dict[str, str]) -> str:
    """`n2((const float (*)[4][4])(memory + 0), weight, (float (*)[4][4])(memory + 128));`"""
    arguments = [
        f"({kind} (*){_inner(network.shapes[name])}){names[name]}" if name in names else name
        for name, kind in zip(step.arguments, step.kinds, strict=True)
    ]
    return f"    {step.function}({', '.join(arguments)});"


def _inner(shape: tuple[int, ...]) -> str:
    return "".join(f"[{size}]" for size in shape[1:])


def _prepare(ticket: Ticket, memory: Memory) -> str:
    """The same arithmetic as `Preprocessing`, so that not one bit differs."""
    words = ticket.preprocessing
    factors = [1 / (words.scale * std) for std in words.std]
    offsets = [mean / std for mean, std in zip(words.mean, words.std, strict=True)]
    channels = ticket.input_shape[0]
    if len(factors) == 1:  # the same for all channels
        factors, offsets = factors * channels, offsets * channels
    return PREPARE.format(
        factor=", ".join(map(_number, factors)),
        offset=", ".join(map(_number, offsets)),
        start=memory.starts[IMAGE],
    )


def _number(value: float) -> str:
    """A float32, exactly."""
    return f"{float(np.float32(value)).hex()}f"


def quoted(text: str) -> str:
    """A string of C, whatever is in it."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -_.,:;+()/")
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'
