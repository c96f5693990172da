"""C: a folder of C99 without a heap, for a microcontroller or anything else with a compiler.

ticket.c, ticket.h   the ticket: bytes of an image in, scores of its classes out
main.c, Makefile     an example for this machine, a Cortex-M4 and Linux on aarch64
board.c              what a bare Cortex-M4 needs before `main`
card.json            classes and preparation of pictures, for programs
README.md            the same for people, with the sizes of flash, memory and stack
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from rivals.deploy.c.c_network import generate
from rivals.deploy.c.c_readme import readme
from rivals.deploy.c.c_sizes import measure
from rivals.deploy.c.c_source import header, source
from rivals.deploy.export_format import Format, Options, card, formats, write_card
from rivals.edge.artefact_files import C_FILES
from rivals.edge.runtime_c import compiler
from rivals.errors import RivalsError
from rivals.io.files import make_folder, write_bytes
from rivals.tickets.ticket import Ticket

EXAMPLE = ("main.c", "board.c", "Makefile")


class C(Format):
    """Plain C99 through emx-onnx-cgen."""

    extra = "c"
    modules = ("onnx", "onnxscript", "emx_onnx_cgen")

    def check_installed(self, name: str) -> None:
        super().check_installed(name)
        if compiler() is None:
            raise RivalsError(
                f"The format '{name}' is run to be compared, which needs a C compiler, and none "
                "was found; install one, such as gcc, or name it in $CC."
            )

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        network = generate(ticket)
        make_folder(path)
        write_bytes(path / "ticket.h", header(ticket, network, options).encode())
        write_bytes(path / "ticket.c", source(ticket, network, options).encode())
        for name in EXAMPLE:
            write_bytes(path / name, (files(__package__) / "example" / name).read_bytes())
        sizes = measure(path)
        facts = {**card(ticket, options), "weights": network.weights, "sizes": sizes}
        write_card(path / "card.json", facts, *((path / name).read_bytes() for name in C_FILES))
        write_bytes(path / "README.md", readme(facts).encode())


formats.register("c")(C())
