"""executorch: a `.pte` file whose layers run on XNNPACK, and its card beside it."""

from __future__ import annotations

from pathlib import Path

import torch

from rivals.deploy.export_format import Format, Options, card, formats, write_card
from rivals.deploy.prepared import converting, ticket_module
from rivals.edge.card import sidecar
from rivals.io.files import write_bytes
from rivals.tickets.ticket import Ticket


class Executorch(Format):
    """One image at a time, (1, channels, height, width) as in the ticket."""

    suffix = ".pte"
    extra = "executorch"
    modules = ("executorch",)

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        module, image = ticket_module(ticket, options.raw_input)
        with converting("executorch"):
            data = lower(module, image)
        write_bytes(path, data)
        write_card(sidecar(path), card(ticket, options), data)


def lower(module: torch.nn.Module, image: torch.Tensor) -> bytes:
    """A program that runs convolutions, matrix products, pooling and sums on XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    traced = torch.export.export(module, (image,))
    lowered = to_edge_transform_and_lower(traced, partitioner=[XnnpackPartitioner()])
    return bytes(lowered.to_executorch().buffer)


formats.register("executorch")(Executorch())
