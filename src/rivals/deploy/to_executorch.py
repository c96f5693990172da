"""executorch: a `.pte` file whose layers run on XNNPACK, and its card beside it."""

from __future__ import annotations

from pathlib import Path

import torch

from rivals.deploy.export_format import Format, Options, card, formats, write_card
from rivals.deploy.prepared import Prepared
from rivals.edge.card import sidecar
from rivals.edge.quiet import quiet
from rivals.errors import RivalsError
from rivals.io.files import write_bytes
from rivals.tickets.ticket import Ticket


class Executorch(Format):
    """One image at a time, (1, channels, height, width) as in the ticket."""

    suffix = ".pte"
    extra = "executorch"
    modules = ("executorch",)

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        kind = torch.uint8 if options.raw_input else torch.float32
        module = Prepared(ticket) if options.raw_input else ticket.network
        image = torch.zeros(1, *ticket.input_shape, dtype=kind)
        try:
            with quiet():
                data = lower(module.eval(), image)
        except Exception as error:  # of many kinds, from several passes
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise RivalsError(f"executorch could not write the ticket ({reason}).") from error
        write_bytes(path, data)
        write_card(sidecar(path), card(ticket, options), data)


def lower(module: torch.nn.Module, image: torch.Tensor) -> bytes:
    """A program whose convolutions, products, pooling and sums are XNNPACK's."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    traced = torch.export.export(module, (image,))
    lowered = to_edge_transform_and_lower(traced, partitioner=[XnnpackPartitioner()])
    return bytes(lowered.to_executorch().buffer)


formats.register("executorch")(Executorch())
