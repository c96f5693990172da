"""Runs exported artefacts with numpy, pillow and a runtime. Only the runtime of `.pte` needs torch.

from rivals import edge

ticket = edge.load("ticket.onnx")
answer = ticket.classify("picture.png")
print(answer.label, answer.confidence)
"""

from rivals.edge.artefact import Answer, Artefact, load
from rivals.edge.card import Card
from rivals.io.pictures import to_pixels

__all__ = ["Answer", "Artefact", "Card", "load", "to_pixels"]
