"""What a model folder may hold, at most: checked before memory is taken for it."""

from __future__ import annotations

# Networks that a model may have, with their full widths; empty: the network's own. Others would be
# imported by name, and a foreign folder must not choose what is imported.
NETWORKS: dict[str, tuple[int, ...]] = {
    "conv-small": (128, 256, 512),
    "lenet": (),
    "mlp": (),
    "resnet-small": (),
}
TASKS = 10_000
CLASSES = 1000
SIDE = 256  # pixels
UNITS = 100_000  # rivals in a block
DESCRIPTION = 256 * 2**20  # bytes of model.json
TASK_FILE = 2**30  # bytes
