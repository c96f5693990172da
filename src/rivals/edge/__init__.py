"""What runs on a device, without torch: exported files, and models that learn there.

Only the Python runtime for `.pte` files needs torch.

from rivals import edge

ticket = edge.load("ticket.onnx")
answer = ticket.classify("picture.png")
print(answer.label, answer.confidence)

model = edge.EdgeModel("parts")
model.learn("photos/screws")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rivals.answer import Answer
from rivals.edge.artefact import Artefact, load
from rivals.edge.card import Card
from rivals.io.pictures import to_pixels
from rivals.io.spectrogram import SoundSettings

if TYPE_CHECKING:
    from rivals.edge.taught import EdgeModel

__all__ = ["Answer", "Artefact", "Card", "EdgeModel", "SoundSettings", "load", "to_pixels"]


def __getattr__(name: str) -> Any:
    """`EdgeModel`, when it is first asked for: exported files run without what it needs."""
    if name == "EdgeModel":
        from rivals.edge.taught import EdgeModel

        return EdgeModel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
