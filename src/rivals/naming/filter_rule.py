"""Naming tasks without an ancestor: one discriminant over all classes, on a fixed bank of filters.

The bank is never trained (nn/filter_bank.py), so its features are the same for all tasks, and tasks
are named as with an ancestor: class means and a covariance of each task are kept, and no picture.
What is usual in these features, before any task, is known from drawn pictures (drawn_pictures.py).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import safetensors
import safetensors.numpy
import torch

from rivals.errors import RivalsError
from rivals.io.reading import read_bytes
from rivals.naming.feature_space import FeatureSpace
from rivals.naming.shared_features import SharedFeatures
from rivals.nn.filter_bank import WIDTH, FilterBank
from rivals.tickets.parallel import SharedBodyTicket

PLACE = Path(__file__).parent
CHANNELS = (1, 3)
LARGEST = 2**20  # bytes of a file
RIDGE = 0.01  # of the mean variance: 16 bits are few for features that go together so much


@cache
def filter_rule(channels: int, device: torch.device) -> SharedFeatures:
    """The rule for pictures with so many channels, its bank on `device`."""
    looked_at = channels if channels in CHANNELS else 1
    none = torch.empty(0, WIDTH, device=device)
    body = FilterBank(looked_at).eval().to(device)
    return SharedFeatures(filter_space(looked_at), SharedBodyTicket(body, none, none[:, 0], True))


def usual_file(channels: int) -> Path:
    """What is usual in the features of pictures with so many channels."""
    return PLACE / f"filter_bank_{channels}.safetensors"


def filter_space(channels: int) -> FeatureSpace:
    """The space of roots of the bank's features."""
    file = usual_file(channels)
    data = read_bytes(file, "statistics of the filter bank", LARGEST)
    try:
        kept = safetensors.numpy.load(data)
        return FeatureSpace.of_background({**kept, "within": kept["covariance"]}, RIDGE)
    except (safetensors.SafetensorError, LookupError, ValueError) as error:
        raise RivalsError(
            f"The statistics of the filter bank {file} are damaged: {error}; install rivals again."
        ) from error
