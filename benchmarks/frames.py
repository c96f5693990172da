"""Several frames of one thing: how much the filter of `Model.watch` gains over single pictures.

    python benchmarks/frames.py --out results/frames.csv [--on validation test] [--choose]
    python benchmarks/frames.py --time

One model learns the ten tasks of CIFAR-100 (the 150 pictures a class of the subset), closed form on
the features of `small`. Nobody says which task a frame is of. Streams are made of pictures that
were not learned, 1,500 of each kind:

    task    five pictures of one task, each of any of its ten classes
    class   five pictures of one class
    still   one picture five times, moved by up to two pixels, brighter or darker, with noise
    things  forty pictures: things follow each other, each of any class, for nine frames on average

`test` has test images and a model of 150 pictures a class; `validation` has 50 of these 150, and a
model of the other 100. Constants of the filter were chosen on `validation`: `--choose` shows the
mean loss (nats) of the fifth frame of `task`, `class` and `still`, and of all of `things`, for
other values. Columns: after how many frames; percent of streams of which the task, and the class of
the last frame, are right; and the confidence in that class among all classes, in percent.

`--time` prints milliseconds of one thread, medians over 30: an answer of the filter, the naming of
one frame alone, and one picture added to a class, which is learned and written.

`one task` in the column `filter` knows that no frame is of another task than the first, and says of
each frame its own class; it is what naming a task of several pictures reaches.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import rivals
from rivals.io.pictures import to_pixels
from rivals.naming.frame_filter import CAMERA, Chances, difference, update
from rivals.streams.data.loading import load

TASKS, CLASSES, PICTURES, HELD = 10, 10, 150, 50  # tasks, classes of each, pictures of a class
STREAMS, FRAMES, LONG, SHOWN = 1500, 5, 40, 9
FILTERS = {
    "none": replace(CAMERA, change=1.0),  # each frame alone
    "default": CAMERA,
    "one task": Chances(change=0.0, label=(1.0,), novelty=CAMERA.novelty),
}
SIZES = [CLASSES] * TASKS
Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
Streams = dict[str, tuple[Numbers, Places]]  # evidence (n, frames, classes), truth (n, frames)


def learned(folder: Path, pictures: int) -> tuple[rivals.Model, list[int]]:
    """A model of all tasks from so many pictures of a class, and the pictures it did not see."""
    data, chance = load("cifar-100"), np.random.default_rng(0)
    labels, names = np.asarray(data.train.labels), [str(each) for each in data.classes]
    model, others = rivals.Model(folder), list[int]()
    for task in range(TASKS):
        chosen: list[int] = []
        for label in range(CLASSES * task, CLASSES * (task + 1)):
            members = chance.permutation(np.flatnonzero(labels == label))[:PICTURES].tolist()
            chosen, others = chosen + members[:pictures], others + members[pictures:]
        there = np.asarray(data.train.images[np.array(chosen)]), [names[labels[i]] for i in chosen]
        model.learn(there, f"task {task}", new=0, ancestor=None if task else "small")
    return model, others


def evidence(model: rivals.Model, pictures: list[NDArray[np.uint8]]) -> Numbers:
    """Log probabilities of all classes of every picture: (n, classes)."""
    shape, ask = model.opened().description.input_shape, model.predictor().log_probabilities
    pixels = np.stack([to_pixels(each, shape) for each in pictures])
    parts = torch.from_numpy(pixels).split(100)  # type: ignore[no-untyped-call]
    return np.asarray(torch.cat([ask(part) for part in parts]).double().numpy())


def moved(picture: NDArray[np.uint8], chance: np.random.Generator) -> NDArray[np.uint8]:
    """The same picture as a hand that is not quite still shows it."""
    (down, right), (_, height, width) = chance.integers(0, 5, 2), picture.shape
    wide = np.pad(picture.astype(float), ((0, 0), (2, 2), (2, 2)), mode="edge")
    part = wide[:, down : down + height, right : right + width]
    noise = chance.normal(0, 6, part.shape)
    return np.clip(part * chance.uniform(0.9, 1.1) + noise, 0, 255).astype(np.uint8)


def make_streams(on: str) -> Streams:
    """Streams of pictures that were not learned, of each kind."""
    data, chance = load("cifar-100"), np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        kept = PICTURES - HELD if on == "validation" else PICTURES
        model, others = learned(Path(folder) / "model", kept)
        part = data.train if on == "validation" else data.test
        chosen = others if on == "validation" else list(range(len(part.labels)))
        order = [label for task in model.tasks for label in task.classes]
        truth = np.array([order.index(str(data.classes[part.labels[i]])) for i in chosen])
        pictures = [np.asarray(part.images[i]) for i in chosen]
        single = evidence(model, pictures)
        some = chance.permutation(len(pictures))[:STREAMS]
        views = [moved(pictures[i], chance) for i in some for _ in range(FRAMES)]
        still = evidence(model, views).reshape(len(some), FRAMES, -1)
    of_class = [np.flatnonzero(truth == label) for label in range(TASKS * CLASSES)]
    of_task = [np.flatnonzero(truth // CLASSES == task) for task in range(TASKS)]

    def drawn(pools: list[Places]) -> Places:
        picks = chance.integers(len(pools), size=STREAMS)
        return np.array([chance.choice(pools[pick], FRAMES, replace=False) for pick in picks])

    rows = {"task": drawn(of_task), "class": drawn(of_class)}
    things = np.zeros((STREAMS // 10, LONG), np.int64)
    for row in things:
        place = 0
        while place < LONG:
            frames = int(chance.geometric(1 / SHOWN))
            pool = of_class[chance.integers(len(of_class))]
            row[place : place + frames] = chance.choice(pool, frames)[: LONG - place]
            place += frames
    rows["things"] = things
    made = {name: (single[index], truth[index]) for name, index in rows.items()}
    return {**made, "still": (still, np.repeat(truth[some][:, None], FRAMES, 1))}


def beliefs(stream: Numbers, chances: Chances) -> Iterator[Numbers]:
    """What is believed of the classes after each frame of one stream."""
    belief, last = None, None
    for frame in stream:
        weight = 1.0 if last is None else chances.novelty * difference(frame, last)
        belief, last = update(belief, frame, SIZES, min(1.0, weight), chances), frame
        yield belief.sum(0)


def filtered(streams: Numbers, chances: Chances) -> Numbers:
    """(n, frames, classes)."""
    if chances.change == 1:
        return np.exp(streams - streams.max(2, keepdims=True))
    return np.array([list(beliefs(stream, chances)) for stream in streams])


def rows_of(on: str, streams: Streams) -> Iterator[dict[str, object]]:
    for kind, (frames, truth) in streams.items():
        for name, chances in FILTERS.items():
            if (name == "one task") != (kind == "task") and name == "one task":
                continue
            found = filtered(frames, chances)
            found /= found.sum(2, keepdims=True)
            best = found.argmax(2)
            right = (best // CLASSES == truth // CLASSES, best == truth, found.max(2))
            counts = [LONG] if kind == "things" else [1, 3, FRAMES]
            for count in counts:
                part = slice(None) if kind == "things" else slice(count - 1, count)
                values = [f"{100 * float(each[:, part].mean()):.1f}" for each in right]
                named = ("task", "class", "confidence")
                yield {"on": on, "stream": kind, "filter": name, "frames": count,
                       **dict(zip(named, values, strict=True))}  # fmt: skip


def loss(streams: Streams, chances: Chances) -> list[float]:
    """Of the last frame of streams of each kind; of `things` of every frame."""
    losses = []
    for kind, (frames, truth) in streams.items():
        some = frames[:300]
        found = np.take_along_axis(filtered(some, chances), truth[:300, :, None], 2)[..., 0]
        nats = -np.log(np.maximum(found, 1e-12))
        losses.append(float(nats.mean() if kind == "things" else nats[:, -1].mean()))
    return losses


def print_times() -> None:
    """Seconds of CPU and by the clock, interleaved."""
    torch.set_num_threads(1)
    data = load("cifar-100")
    pictures = [np.asarray(data.test.images[number]) for number in range(30)]
    with tempfile.TemporaryDirectory() as folder:
        model, _ = learned(Path(folder) / "model", PICTURES)
        label, watched = model.tasks[0].classes[0], model.watch(iter(pictures))
        steps: dict[str, Callable[[NDArray[np.uint8]], object]] = {
            "answer of the filter": lambda picture: next(watched),
            "answer to one picture": model.predict,
            "picture added": lambda picture: model.add_picture(picture, label),
        }  # fmt: skip
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
        for picture in pictures:
            for name, step in steps.items():
                began = time.process_time(), time.perf_counter()
                step(picture)
                spent[name].append((time.process_time() - began[0], time.perf_counter() - began[1]))
    for name, seconds in spent.items():
        cpu, clock = (1000 * statistics.median(each) for each in zip(*seconds, strict=True))
        print(f"{name:24} {cpu:6.1f} ms of CPU, {clock:6.1f} by the clock")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/frames.csv"))
    parser.add_argument("--on", nargs="*", default=["validation", "test"])
    parser.add_argument("--choose", action="store_true", help="show the loss of other constants")
    parser.add_argument("--time", action="store_true", help="measure how long things take instead")
    wanted = parser.parse_args()
    if wanted.time:
        print_times()
        return
    rows = []
    for on in wanted.on:
        streams = make_streams(on)
        rows += list(rows_of(on, streams))
        if wanted.choose and on == "validation":
            print("change  label        novelty  loss:", *streams, "sum")
            for change in (0.01, 0.02, 0.05, 0.1):
                for label in ((0.02,), (0.95,), (0.02, 0.95), (0.1, 0.95)):
                    for novelty in (2.0, 4.0, 8.0, 1e9):
                        found = loss(streams, Chances(change, label, novelty))
                        shown = " ".join(f"{each:.2f}" for each in [*found, sum(found)])
                        print(f"{change:6} {label!s:13} {novelty:7.0g} {shown}", flush=True)
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    with wanted.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(*(f"{value!s:10}" for value in row.values()))


if __name__ == "__main__":
    main()
