"""Run exported artefacts with numpy, pillow and a runtime, without torch.

Only the Python runtime for `.pte` files needs torch.

from rivals import edge

ticket = edge.load("ticket.onnx")
answer = ticket.classify("picture.png")
print(answer.label, answer.confidence)
"""

from rivals.answer import Answer
from rivals.edge.artefact import Artefact, load
from rivals.edge.card import Card
from rivals.io.pictures import to_pixels
from rivals.io.spectrogram import SoundSettings

__all__ = ["Answer", "Artefact", "Card", "SoundSettings", "load", "to_pixels"]
