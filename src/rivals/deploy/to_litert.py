"""LiteRT: a `.tflite` file for phones and boards, and its card beside it."""

from __future__ import annotations

from pathlib import Path

from rivals.deploy.export_format import Format, Options, card, formats, write_card
from rivals.deploy.prepared import converting, ticket_module
from rivals.edge.card import sidecar
from rivals.tickets.ticket import Ticket


class LiteRT(Format):
    """One image at a time, (1, channels, height, width) as in the ticket."""

    suffix = ".tflite"
    extra = "litert"
    modules = ("litert_torch", "ai_edge_litert")

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        module, image = ticket_module(ticket, options.raw_input)
        with converting("litert-torch"):
            import litert_torch

            litert_torch.convert(module, (image,)).export(str(path))
        write_card(sidecar(path), card(ticket, options), path.read_bytes())


formats.register("litert")(LiteRT())
