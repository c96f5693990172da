"""What a model folder may hold, at most: checked before memory is taken for it."""

from __future__ import annotations

# Networks that a model may have, with their full widths; empty: the network's own. Others would be
# imported by name, and a foreign folder must not choose what is imported.
NETWORKS: dict[str, tuple[int, ...]] = {
    "conv-residual": (),
    "conv-small": (128, 256, 512),
    "lenet": (),
    "mlp": (),
    "resnet-small": (),
}
WIDTHS, WIDTH = 24, 8192  # of a network: how many, and units of a layer
TASKS = 4096
CLASSES = 1000  # of a task
SIDE = 256  # pixels
LAYERS = 100
UNITS = 40_000  # rivals in a block: a task may add eight
ALL_UNITS = 2**22  # of a layer, in all its blocks
TICKET_WEIGHTS = 2**25  # of one task, its head aside
ACTIVATIONS = 2**24  # numbers that the widest layer gives for one picture
DESCRIPTION = 32 * 2**20  # bytes of model.json
HEADER = 2**18  # bytes of the header of a task's file
HISTORY = 50_000  # events
WORDS = 2000  # characters of what is said of an ancestor
RIVALS = 8  # in a block of a new model
HELD, MOST_HELD = 0.2, 2000  # of the pictures are held out: a share, but not more


def held_share(images: int) -> float:
    """The share of so many pictures that is held out."""
    return min(HELD, MOST_HELD / max(1, images))
