"""From a folder of photos to a small file for a phone.

The photos are digits that come with rivals, written as PNG files: one subfolder for each class, as
you would sort your own. Needs `pip install 'rivals[export]'`.
"""

from pathlib import Path

from PIL import Image

import rivals
from rivals import edge
from rivals.streams.digits import load

PHOTOS, NEW = Path("photos"), Path("new-photos")
NAMES = {0: "zero", 1: "one", 7: "seven"}


def write_photos(count: int = 40) -> None:
    """`count` photos a class to learn from, and 20 others to test with."""
    images, labels, _ = load()
    for digit, name in NAMES.items():
        of_class = images[labels == digit][: count + 20, 0]
        for number, pixels in enumerate(of_class):
            folder = (PHOTOS if number < count else NEW) / name
            folder.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray((pixels.numpy() * 15).astype("uint8"))
            picture.resize((64, 64)).save(folder / f"{number}.png")


write_photos()

model = rivals.Model("my-model")
learned = model.learn(PHOTOS, name="numbers")
print(f"Learned from {learned.facts.images} photos.")

report = model.test(NEW, task="numbers")
low, high = report.interval
print(f"New photos: {report.accuracy:.0f} % right (95 % interval {low:.0f} to {high:.0f} %).")

answer = model.predict(NEW / "seven" / "40.png")
print(f"{answer.label}, {answer.confidence:.0%} sure; then {answer.top(2)[1].label}.")

model.export("numbers", "numbers.onnx")  # compared with the model before it is kept
size = Path("numbers.onnx").stat().st_size
print(f"numbers.onnx has {size / 1000:.0f} kB and needs neither rivals nor torch.")
on_the_phone = edge.load("numbers.onnx").classify(NEW / "seven" / "40.png")
assert on_the_phone.label == answer.label
