"""Which task does a picture belong to? The targets of docs/task-unknown.md, by one command.

    python benchmarks/naming.py --out results/naming.csv [--only quickstart] [--ancestors small]

quickstart   the three tasks of docs/quickstart.md, learned as `rivals learn` does: class right
             without the task, and with it, in percent of the 200 held-out pictures of each
subset       ten tasks of CIFAR-100, 150 pictures a class, in closed form: the same of all test
             images, the calibration error of the confidence, and the share of test images that is
             refused at 0.05, with the task given and without it
complete     the same with all 500 pictures a class
validation   the same with 100 of the 150, tested with the others; what was chosen was chosen on it

`--time` prints milliseconds of CPU of one thread, medians over 30, to name one picture and forty
among 10, 20, 200 and 1,000 tasks of ten classes in closed form; the same with refusing.

`refused` are pictures of other data sets and other classes, noise and plain colours, at 0.05; they
chose nothing. A row for each number goes to the file; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import csv
import runpy
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import rivals
from rivals.ancestors.ancestor import shipped
from rivals.answer import Answer
from rivals.io.pictures import to_pixels
from rivals.learn.model_twta import ModelTWTA
from rivals.model import defaults, limits
from rivals.model.folder import empty
from rivals.model.manifest import AncestorName, Description
from rivals.naming.confidence import calibration_error
from rivals.naming.discriminant import ClassStatistics
from rivals.naming.shared_features import SharedFeatures
from rivals.naming.task_record import TaskRecord
from rivals.naming.task_statistics import beside_head
from rivals.streams.data.loading import load

FIELDS = ("part", "ancestor", "what", "percent", "pictures")
PARTS = ("quickstart", "validation", "subset", "complete")
PICTURES = {"validation": 100, "subset": 150, "complete": 500}  # of a class, that are learned
TASKS, CLASSES, REJECT, COUNT = 10, 10, 0.05, 400
FOLDERS = Path(__file__).parents[1] / "tests" / "picture_folders.py"
OTHERS = {  # data set, its classes that no task of the quickstart has
    "SVHN": ("svhn", None),
    "CIFAR-100": ("cifar-100", None),
    "Omniglot": ("omniglot", None),
    "notMNIST": ("notmnist", None),
    "MNIST, the digits 5 to 9": ("mnist", (5, 6, 7, 8, 9)),
    "Fashion-MNIST, other clothes": ("fashion-mnist", (2, 3, 4, 6, 9)),
    "CIFAR-10, other animals": ("cifar-10", (2, 3, 5, 6)),
}
Found = Iterator[tuple[str, float, int]]  # what, percent, of so many pictures
Shape = tuple[int, int, int]


def pixels_of(pictures: Sequence[object], shape: Shape) -> NDArray[np.uint8]:
    return np.stack([to_pixels(each, shape) for each in pictures])


def share(values: Sequence[bool]) -> float:
    return 100 * float(np.mean(values))


def strangers(shape: Shape) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Test images of other data sets and classes, and what is no picture at all."""
    for title, (name, classes) in OTHERS.items():
        part = load(name).test
        places = np.arange(len(part.labels))
        if classes is not None:
            places = np.flatnonzero(np.isin(np.asarray(part.labels), classes))
        some = places[:: max(1, len(places) // COUNT)][:COUNT]
        yield title, pixels_of([np.asarray(part.images[i]) for i in some], shape)
    random = np.random.default_rng(0)
    yield "noise", random.integers(0, 256, (COUNT, *shape), np.uint8)
    flat = random.integers(0, 256, (COUNT, shape[0], 1, 1), np.uint8)
    yield "one plain colour", np.broadcast_to(flat, (COUNT, *shape)).copy()


def refusals(model: rivals.Model, left_out: Sequence[str] = ()) -> Found:
    shape = model.opened().description.input_shape
    for title, images in strangers(shape):
        if title not in left_out:
            rejected = [each.rejected for each in model.answers(images, reject=REJECT)]
            yield f"refused of {title}", share(rejected), len(images)


def quickstart(ancestor: str, folder: Path) -> Found:
    """Three tasks that look different."""
    write = runpy.run_path(str(FOLDERS))["write"]
    model, own = rivals.Model(folder / "model"), list[Answer]()
    names = ("digits", "clothes", "things")
    for task in names:
        write(folder / "photos", task, 100, 40)
        model.learn(folder / "photos" / task, ancestor=None if own or model.tasks else ancestor)
    shape = model.opened().description.input_shape
    right, confidence = list[bool](), list[float]()
    for task in names:
        files = sorted((folder / "photos" / "held" / task).glob("*/*"))
        images, truth = pixels_of(files, shape), [file.parent.name for file in files]
        found, given = model.answers(images, reject=REJECT), model.answers(images, task)
        good = [f.task == task and f.label == t for f, t in zip(found, truth, strict=True)]
        yield f"class right of {task}", share(good), len(files)
        known = [each.label == name for each, name in zip(given, truth, strict=True)]
        yield f"class right of {task}, task given", share(known), len(files)
        own, right = own + found, right + good
        confidence += [each.confidence for each in found]
    yield "calibration error", calibration_error(np.array(confidence), np.array(right)), len(own)
    yield "refused of its own pictures", share([each.rejected for each in own]), len(own)
    yield from refusals(model)


def cifar(ancestor: str, folder: Path, part: str) -> Found:
    """Ten tasks that look alike."""
    data, chance = load("cifar-100"), np.random.default_rng(0)
    labels, names = np.asarray(data.train.labels), [str(each) for each in data.classes]
    model, others = rivals.Model(folder / "model"), list[int]()
    began = time.monotonic()
    for task in range(TASKS):
        chosen = list[int]()
        for label in range(CLASSES * task, CLASSES * (task + 1)):
            members = chance.permutation(np.flatnonzero(labels == label)).tolist()
            chosen += members[: PICTURES[part]]
            others += members[PICTURES[part] : 150]
        there = np.asarray(data.train.images[np.array(chosen)]), [names[labels[i]] for i in chosen]
        model.learn(there, f"task {task}", new=0, ancestor=None if task else ancestor)
    print(f"learned in {time.monotonic() - began:.0f} s", flush=True)
    tested, places = data.test, list(range(len(data.test.labels)))
    if part == "validation":
        tested, places = data.train, others
    truth = [int(tested.labels[place]) for place in places]
    shape = model.opened().description.input_shape
    unknown, given = list[Answer](), list[Answer]()
    for at in range(0, len(places), 100):
        some = places[at : at + 100]
        images = pixels_of([np.asarray(tested.images[place]) for place in some], shape)
        unknown += model.answers(images, reject=REJECT)
        tasks = np.array(truth[at : at + 100]) // CLASSES
        known = dict[int, Answer]()
        for task in np.unique(tasks).tolist():
            own = np.flatnonzero(tasks == task)
            known |= dict(
                zip(own.tolist(), model.answers(images[own], f"task {task}", REJECT), strict=True)
            )
        given += [known[place] for place in range(len(some))]
    for title, answers in (("", unknown), (", task given", given)):
        right = [each.label == names[label] for each, label in zip(answers, truth, strict=True)]
        sure = np.array([each.confidence for each in answers])
        yield f"class right{title}", share(right), len(right)
        yield f"calibration error{title}", calibration_error(sure, np.array(right)), len(right)
        rejected = [each.rejected for each in answers]
        yield f"refused of its own pictures{title}", share(rejected), len(right)
    found = [a.task == f"task {t // CLASSES}" for a, t in zip(unknown, truth, strict=True)]
    yield "task right", share(found), len(found)
    yield from refusals(model, ["CIFAR-100"])


def made_of(tasks: int) -> ModelTWTA:
    """A network that knows tasks of ten classes in closed form, from features by chance."""
    ancestor = shipped("small")
    widths = tuple(width * limits.RIVALS for width in ancestor.widths)
    named = AncestorName(ancestor.name, ancestor.sha256)
    method = empty(
        Description(
            0, ancestor.architecture, widths, limits.RIVALS, (3, 48, 48), (), ancestor=named
        ),
        ancestor,
    )
    prepare, naming = defaults.preparation(3, ancestor), SharedFeatures(method.network.space)
    for number in range(tasks):
        chance = torch.Generator().manual_seed(number)
        rows = torch.randn(30, method.network.shared_width, generator=chance).square()
        labels = torch.arange(30) % 10
        kept = ClassStatistics.of(rows, labels).without_scatter().tensors()
        kept |= beside_head(naming.kept(rows, labels, 10))
        kept |= {"prior": torch.tensor([300.0]), "scale": torch.tensor([0.1])}
        names = tuple(map(str, range(10)))
        method.learn_in_closed_form(f"task {number}", TaskRecord(names, prepare, kept))
    return method


def print_times() -> None:
    """Of models that take turns, so that what else runs slows them all."""
    counts, ways = (10, 20, 200, 1000), ((1, None), (40, None), (1, REJECT))
    predictors = {tasks: made_of(tasks).predictor() for tasks in counts}
    found: dict[tuple[int, int], list[float]] = {}
    for _ in range(30):
        for number, (count, reject) in enumerate(ways):
            images = torch.randint(0, 256, (count, 3, 48, 48), dtype=torch.uint8)
            for tasks, predictor in predictors.items():
                began = time.process_time()
                predictor.predict(images, reject=reject)
                found.setdefault((tasks, number), []).append(time.process_time() - began)
    print("| tasks | one picture | forty | one, may be refused |\n|--:|--:|--:|--:|")
    for tasks in counts:
        each = [1000 * statistics.median(found[tasks, number]) for number in range(len(ways))]
        print(f"| {tasks:,} | " + " | ".join(f"{value:.1f}" for value in each) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/naming.csv"))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--ancestors", nargs="*", default=["small", "tiny"])
    parser.add_argument("--time", action="store_true", help="measure how long naming takes instead")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    if wanted.time:
        print_times()
        return
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    rows = list(csv.DictReader(wanted.out.open())) if wanted.out.exists() else []
    done = {(row["part"], row["ancestor"]) for row in rows}
    for part in wanted.only:
        for ancestor in wanted.ancestors:
            if (part, ancestor) in done:
                continue
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                if part == "quickstart":
                    found = list(quickstart(ancestor, place))
                else:
                    found = list(cifar(ancestor, place, part))
            made = [
                dict(zip(FIELDS, (part, ancestor, what, f"{value:.1f}", count), strict=True))
                for what, value, count in found
            ]
            with wanted.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerows(made)
            rows += made
    for row in rows:
        if row["part"] in wanted.only:
            print(f"{row['part']:11} {row['ancestor']:6} {row['percent']:>6} %  {row['what']}")


if __name__ == "__main__":
    main()
