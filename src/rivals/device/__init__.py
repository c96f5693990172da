"""Teach a device: learn a task from a folder of pictures, ask, take a task out.

from rivals.device import Model, Predictor, drop, learn

learn("parts", "model")                            # a folder with a subfolder for each class
answers = Predictor("model").predict([picture])    # class, task, confidence
drop("model", "parts")                             # exactly: the others keep every bit
"""

from rivals.device.dropping import Dropped, drop
from rivals.device.learning import Interrupted, Learned, learn
from rivals.device.model import Model, TaskFacts
from rivals.device.predicting import Answer, Predictor

__all__ = [
    "Answer", "Dropped", "Interrupted", "Learned", "Model", "Predictor", "TaskFacts", "drop",
    "learn",
]  # fmt: skip
