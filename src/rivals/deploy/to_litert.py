"""LiteRT: a `.tflite` file for phones and boards, and its card beside it."""

from __future__ import annotations

from pathlib import Path

import torch

from rivals.deploy.export_format import Format, Options, card, formats, write_card
from rivals.deploy.prepared import Prepared
from rivals.edge.card import sidecar
from rivals.edge.quiet import quiet
from rivals.errors import RivalsError
from rivals.tickets.ticket import Ticket


class LiteRT(Format):
    """One image at a time, (1, channels, height, width) as in the ticket."""

    suffix = ".tflite"
    extra = "litert"
    modules = ("litert_torch", "ai_edge_litert")

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        kind = torch.uint8 if options.raw_input else torch.float32
        module = Prepared(ticket) if options.raw_input else ticket.network
        image = torch.zeros(1, *ticket.input_shape, dtype=kind)
        try:
            with quiet():
                import litert_torch

                litert_torch.convert(module.eval(), (image,)).export(str(path))
        except Exception as error:  # of many kinds, from several converters
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise RivalsError(f"litert-torch could not write the ticket ({reason}).") from error
        write_card(sidecar(path), card(ticket, options), path.read_bytes())


formats.register("litert")(LiteRT())
