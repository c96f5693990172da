"""A device that learns by itself, as a Raspberry Pi would: little memory, few pictures, no network.

It learns three tasks, forgets one, and shows that the answers of the others are the same to the
last bit. A task is a few kilobytes where the features of the trained network that comes with rivals
suffice, and some tens where edges of the pictures are better: that is tried for each.
"""

import numpy as np

import rivals
from rivals.streams.digits import load

TASKS = {"low": (0, 1), "middle": (4, 5), "high": (8, 9)}
MEGABYTES = 1500  # `learn` stops with one sentence before it takes more


def pictures(digits: tuple[int, ...], start: int, stop: int) -> tuple[np.ndarray, list[int]]:
    """Bytes (n, 8, 8) and labels of some pictures of each digit."""
    images, labels, _ = load()
    parts = [(images[labels == digit][start:stop, 0] * 15).byte().numpy() for digit in digits]
    return np.concatenate(parts), [digit for digit in digits for _ in range(stop - start)]


model = rivals.Model("device")
for name, digits in TASKS.items():
    learned = model.learn(pictures(digits, 0, 20), name=name, ram=MEGABYTES)
    took, size = learned.facts.seconds, learned.facts.bytes / 1000
    print(f"{name}: {learned.facts.images} pictures in {took:.1f} s, {size:.1f} kB")

held = pictures(TASKS["high"], 100, 140)[0]
answers = model.predict(list(held), task="high")
model.drop("middle")
again = model.predict(list(held), task="high")
assert answers == again
print("After 'middle' was dropped, 'high' answers the same to the last bit.")

report = model.test(pictures(TASKS["high"], 100, 140), task="high")
print(f"high: {report.accuracy:.0f} % right on pictures that it never saw")
print("tasks:", ", ".join(task.name for task in model.tasks))
