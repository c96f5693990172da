"""A ticket: the small network of one task, with all it takes to use it, as a folder.

ticket.json           task, classes, preprocessing, architecture, winners, accuracy, cost
weights.safetensors   its weights, nothing else
README.md             its card
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, fx

from rivals.errors import RivalsError
from rivals.io.files import digest, make_folder, read_json, write_bytes
from rivals.streams.task import Preprocessing
from rivals.tickets.cost import cost
from rivals.tickets.graph_words import build, describe

FORMAT = 1
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)  # of a foreign file


@dataclass
class Ticket:
    """A plain network and what belongs to it; runs without the model it came from."""

    network: fx.GraphModule
    task: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    input_shape: tuple[int, int, int]
    winners: list[list[int]] = field(default_factory=list)  # per set of rivals
    accuracy: float | None = None  # percent on test data, the task being known

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Probabilities (n, classes) of raw images (n, channels, height, width) as stored."""
        scores: Tensor = self.network(self.preprocessing(images))
        return torch.softmax(scores, 1)

    @torch.no_grad()
    def verify(
        self, images: Tensor, scores: Callable[[Tensor], Tensor], tolerance: float = 1e-5
    ) -> float:
        """Compare with the network it was cut from, whose `scores` take prepared images.

        Gives the largest difference, relative to the largest score where that is above 1; more
        than `tolerance` is refused.
        """
        prepared = self.preprocessing(images)
        theirs = scores(prepared)
        scale = max(1.0, float(theirs.abs().max()))
        apart = float((self.network(prepared) - theirs).abs().max()) / scale
        if not apart <= tolerance:
            raise RivalsError(
                f"The ticket for '{self.task}' differs from its network by {apart:.1e}, where "
                f"{tolerance:.0e} is allowed; cut it anew."
            )
        return apart

    def fingerprint(self) -> str:
        """A digest of architecture and weights: equal bits, equal fingerprint."""
        data = safetensors.torch.save(_tensors(self.network))
        return digest(data + repr(describe(self.network)).encode())

    def save(self, folder: Path) -> None:
        make_folder(folder)
        data = safetensors.torch.save(_tensors(self.network))
        size = cost(self.network, self.input_shape)
        facts = {
            "format": FORMAT,
            "task": self.task,
            "classes": list(self.classes),
            "preprocessing": vars(self.preprocessing),
            "input_shape": list(self.input_shape),
            "architecture": describe(self.network),
            "winners": self.winners,
            "accuracy": self.accuracy,
            "weights": size.weights,
            "bytes": len(data),
            "macs": size.macs,
            "ram": size.ram,
            "sha256": digest(data),
        }
        write_bytes(folder / "weights.safetensors", data)
        write_bytes(folder / "ticket.json", _lines(facts).encode())
        write_bytes(folder / "README.md", card(facts).encode())

    @classmethod
    def load(cls, folder: Path) -> Ticket:
        """Read a ticket folder; altered or foreign content is refused in one sentence."""
        facts = read_json(folder / "ticket.json", "ticket")
        if facts.get("format") != FORMAT:
            raise RivalsError(
                f"The ticket {folder} has format {facts.get('format')}, and this version reads "
                f"{FORMAT}; use the version of rivals that wrote it."
            )
        try:
            data = (folder / "weights.safetensors").read_bytes()
        except OSError as error:
            raise RivalsError(
                f"The ticket {folder} has no readable weights ({error.strerror})."
            ) from error
        try:
            if digest(data) != facts["sha256"]:
                raise RivalsError(
                    f"The weights of the ticket {folder} were altered: checksums differ."
                )
            prepare = facts["preprocessing"]
            return cls(
                build(facts["architecture"], safetensors.torch.load(data)),
                facts["task"],
                tuple(facts["classes"]),
                Preprocessing(prepare["scale"], tuple(prepare["mean"]), tuple(prepare["std"])),
                tuple(facts["input_shape"]),
                facts["winners"],
                facts["accuracy"],
            )
        except (*DAMAGE, safetensors.SafetensorError) as error:
            raise RivalsError(
                f"The ticket {folder} is damaged: its ticket.json is not complete or does not fit "
                f"its weights ({type(error).__name__})."
            ) from error


def _lines(facts: dict[str, Any]) -> str:
    """JSON with a line for each fact: short, and still to be read."""
    values = (json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in facts.values())
    pairs = (f"{json.dumps(key)}: {value}" for key, value in zip(facts, values, strict=True))
    return "{\n" + ",\n".join(pairs) + "\n}\n"


def _tensors(network: fx.GraphModule) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in network.state_dict().items()}


def card(facts: dict[str, Any]) -> str:
    """What a person wants to know of a ticket, in Markdown."""
    accuracy = "not measured" if facts["accuracy"] is None else f"{facts['accuracy']:.1f} %"
    channels, height, width = facts["input_shape"]
    scale = facts["preprocessing"]["scale"]
    return f"""# Ticket for "{facts["task"]}"

A plain network cut from a shared one. It needs nothing but its weights.

| | |
|---|---|
| classes | {", ".join(facts["classes"])} |
| input | {channels} × {height} × {width} pixels, (pixels / {scale:g} − mean) / std |
| accuracy, task known | {accuracy} |
| weights | {facts["weights"]:,} |
| file | {facts["bytes"]:,} bytes |
| multiplications for one image | {facts["macs"]:,} |
| memory between layers | {facts["ram"]:,} bytes |

```python
from rivals.tickets import Ticket

ticket = Ticket.load("this folder")
probabilities = ticket(images)  # raw pixels, (n, {channels}, {height}, {width})
```
"""
