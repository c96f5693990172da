"""Trains an ancestor: a small network that knows pictures, for all models to start from.

    python -m rivals.ancestors.train tiny --teacher WEIGHTS --out FOLDER

It learns Tiny-ImageNet (the complete one, found as `rivals data` finds it) in two ways at once: to
name the classes, and to have the features of a large network (teacher.py) but for a linear map.
Every tenth class is never shown; tasks of these classes say how good the ancestor is for tasks that
it has not seen, so nothing is chosen on the data that ancestors are judged by.

Pictures are cropped, mirrored, made brighter or darker, sometimes grey, and shown at 32, 48 or 64
pixels, some of them enlarged: small pictures are named better at 48 pixels than at 32. Each epoch
is saved; the same command goes on after a stop.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rivals.ancestors.few_shots import few_shot_accuracy
from rivals.ancestors.teacher import FEATURES, teacher_features
from rivals.io.files import digest, write_bytes, write_json
from rivals.learn.state import load_optimiser, optimiser_tensors
from rivals.naming.discriminant import ClassStatistics
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.optimisers import SGD
from rivals.seeds import Seed
from rivals.streams.data.loading import load

ARCHITECTURE = "conv-residual"
SHAPES = {  # widths of the ancestor
    "tiny": (16, 24, 24, 36, 28, 52, 28, 52, 28, 160),  # 0.118 M weights
    "small": (32, 48, 48, 80, 64, 112, 64, 112, 64, 256),  # 0.550 M weights
}
TASK = "ancestor"
UNSEEN = 10  # every tenth class is held out
VALIDATION = 20  # pictures of each class that are held out, of those that are shown
SIZES, CHANCES = (32, 48, 64), (0.2, 0.55, 0.25)
VIEWS = {"32 pixels enlarged to 48": (32, 48), "64 pixels": (64, 64)}  # it is judged by
ENLARGED = 0.5  # of the pictures shown at 48 pixels, those that had 32
TARGETS = 256  # principal components of the teacher's features
NAMING, DISTILLATION = 0.2, 8.0  # weights of the two losses
EVALUATED = 200  # pictures at once
BATCH, WARM_UP = 128, 200  # images in a step, steps until the learning rate is reached
MOMENTUM, DECAY, SMOOTHING = 0.9, 1e-4, 0.1
GROUPS = 4  # a batch is cropped in so many ways
MEAN, STD = 127.5, 63.75  # the preparation of every model: bytes to −2 … 2


@dataclass
class Pictures:
    """Tiny-ImageNet, divided."""

    images: Any  # (n, 3, 64, 64) uint8, in a file
    labels: Tensor  # of the classes that are shown; −1 for those that are not
    classes: Tensor  # of all 200
    train: Tensor
    validation: Tensor
    unseen: Tensor

    @classmethod
    def load(cls) -> Pictures:
        data = load("tiny-imagenet")
        images, classes = data.train.images, torch.from_numpy(np.asarray(data.train.labels)).long()
        count = int(classes.max()) + 1
        shown = torch.tensor([number for number in range(count) if number % UNSEEN != UNSEEN // 2])
        labels = torch.full((count,), -1)
        labels[shown] = torch.arange(len(shown))
        labels = labels[classes]
        place = torch.zeros_like(classes)
        for number in range(count):
            members = torch.nonzero(classes == number).flatten()
            place[members] = torch.arange(len(members)) - len(members)
        held = (labels >= 0) & (place >= -VALIDATION)
        indices = [torch.nonzero(part).flatten() for part in (
            (labels >= 0) & ~held, held, labels < 0,
        )]  # fmt: skip
        return cls(images, labels, classes, *indices)

    def some(self, index: Tensor, size: int = 64) -> Tensor:
        """Pixels (n, 3, size, size), resized by the mean of areas."""
        images = torch.from_numpy(np.asarray(self.images[index.numpy()])).float()
        return (
            images if size == images.shape[-1] else F.interpolate(images, (size,) * 2, mode="area")
        )


def prepare(pixels: Tensor) -> Tensor:
    return ((pixels - MEAN) / STD).contiguous(memory_format=torch.channels_last)


def changed(pixels: Tensor, size: int, chance: np.random.Generator) -> Tensor:
    """Pictures cropped, mirrored, brighter or darker, with more or less contrast, some grey."""
    parts = []
    for part in pixels.chunk(GROUPS):
        whole = part.shape[-1]
        side = max(whole // 2, round(whole * math.sqrt(chance.uniform(0.4, 1))))
        top, left = chance.integers(0, whole - side + 1, 2)
        crop = part[:, :, top : top + side, left : left + side]
        if side != size:
            crop = F.interpolate(
                crop, (size, size), mode="bilinear", align_corners=False, antialias=side > size
            )
        parts.append(crop)
    pixels = torch.cat(parts)
    count = len(pixels)

    def each(low: float, high: float) -> Tensor:
        return torch.from_numpy(chance.uniform(low, high, (count, 1, 1, 1)).astype(np.float32))

    pixels = torch.where(each(0, 1) < 0.5, pixels.flip(3), pixels)
    mean = pixels.mean((1, 2, 3), keepdim=True)
    pixels = (pixels - mean) * each(0.7, 1.3) + mean + each(-30, 30)
    return torch.where(each(0, 1) < 0.1, pixels.mean(1, keepdim=True), pixels)


def targets(features: Any, sample: Tensor) -> Tensor:
    """The teacher's features as unit vectors along their widest directions, which count more."""
    some = torch.from_numpy(features[np.sort(sample.numpy())].astype(np.float32))
    mean = some.mean(0)
    _, widths, directions = torch.linalg.svd(some - mean, full_matrices=False)
    scale = (widths[:TARGETS] / math.sqrt(len(some))).sqrt()
    directions = directions[:TARGETS] / scale.unsqueeze(1)
    rows = np.array_split(np.arange(len(features)), 20)
    parts = [torch.from_numpy(features[r].astype(np.float32)) - mean for r in rows]
    return F.normalize(torch.cat([part @ directions.T for part in parts]))


class Training:
    """The network, what it is trained by, and its state in a folder."""

    def __init__(self, name: str, pictures: Pictures, wanted: argparse.Namespace) -> None:
        self.name, self.pictures, self.wanted = name, pictures, wanted
        self.seed = Seed(0).child("ancestor", name)
        settings = NetworkSettings(architecture=ARCHITECTURE, widths=SHAPES[name], units=1)
        self.network = NetworkPlan(settings, (3, SIZES[0], SIZES[0])).dense(self.seed)
        self.network.add(TASK, int(pictures.labels.max()) + 1)
        generator = self.seed.child("map").torch()
        self.map = nn.Linear(self.network.features, TARGETS, bias=False)
        with torch.no_grad():
            normal = torch.randn(self.map.weight.shape, generator=generator)
            self.map.weight.copy_(normal / math.sqrt(self.network.features))
        parameters = [*self.network.all_parameters(), *self.map.parameters()]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": DECAY},
            {"params": [p for p in parameters if p.dim() == 1]},
        ]
        self.optimiser = SGD(groups, lr=wanted.lr, momentum=MOMENTUM, nesterov=True)
        self.steps = wanted.epochs * (len(pictures.train) // BATCH)
        self.epoch, self.seconds = 0, 0.0

    # A step ------------------------------------------------------------------------------------

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the classes, and features."""
        with torch.autocast("cpu", torch.bfloat16):
            flow = self.network.flow(images, TASK)
        features = flow.values.float()
        return F.linear(features, self.network.heads[TASK].weight.flatten(1)), features

    def run_epoch(self, wanted: Tensor) -> float:
        """One pass over the pictures; the mean loss."""
        chance = self.seed.child("epoch", self.epoch).numpy()
        order = torch.from_numpy(chance.permutation(self.pictures.train.numpy()))
        self.network.train()
        count, total = len(order) // BATCH, 0.0
        for number in range(count):
            index = order[number * BATCH : (number + 1) * BATCH]
            step = self.epoch * count + number
            for group in self.optimiser.param_groups:
                falling = 0.5 + 0.5 * math.cos(math.pi * step / self.steps)
                group["lr"] = self.wanted.lr * min(1, (step + 1) / WARM_UP) * falling
            size = int(chance.choice(SIZES, p=CHANCES))
            enlarged = size == SIZES[1] and chance.random() < ENLARGED
            start = 32 if size == 32 or enlarged else 64
            images = prepare(changed(self.pictures.some(index, start), size, chance))
            scores, features = self.forward(images)
            named = F.cross_entropy(scores, self.pictures.labels[index], label_smoothing=SMOOTHING)
            near = (F.normalize(self.map(features)) * wanted[index]).sum(1).mean()
            loss = NAMING * named + DISTILLATION * (1 - near)
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            total += loss.item()
        return total / count

    # How good it is ----------------------------------------------------------------------------

    @torch.no_grad()
    def outputs(self, index: Tensor, view: str) -> tuple[Tensor, Tensor]:
        """Scores and features of pictures that are not changed but for their size."""
        self.network.eval()
        size, shown = VIEWS[view]
        found: list[tuple[Tensor, Tensor]] = []
        for start in range(0, len(index), EVALUATED):
            pixels = self.pictures.some(index[start : start + EVALUATED], size)
            if shown != size:
                pixels = F.interpolate(pixels, (shown,) * 2, mode="bilinear", align_corners=False)
            found.append(self.forward(prepare(pixels)))
        scores, features = zip(*found, strict=True)
        return torch.cat(scores), torch.cat(features)

    def covariance(self, features: Tensor) -> Tensor:
        """Of features of the validation pictures, around the means of their classes."""
        statistics = ClassStatistics.of(features, self.pictures.labels[self.pictures.validation])
        assert statistics.scatter is not None
        return statistics.scatter / statistics.freedom

    def within(self) -> Tensor:
        """The mean covariance of all views."""
        index = self.pictures.validation
        return torch.stack([self.covariance(self.outputs(index, v)[1]) for v in VIEWS]).mean(0)

    def report(self, view: str) -> dict[str, Any]:
        """Accuracy on classes that were shown, and in tasks of classes that were not."""
        index, unseen = self.pictures.validation, self.pictures.unseen
        scores, features = self.outputs(index, view)
        right = (scores.argmax(1) == self.pictures.labels[index]).float().mean()
        within = self.covariance(features)
        few = few_shot_accuracy(
            self.outputs(unseen, view)[1], self.pictures.classes[unseen], within
        )
        return {"classes": round(100 * float(right), 1), "five_way": few}

    # Files -------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        tensors = self.network.tensors() | optimiser_tensors(self.optimiser, "optimiser")
        tensors |= {"map": self.map.weight.detach()}
        tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        partial = path.with_suffix(".part")
        save_file(tensors, partial, {"epoch": str(self.epoch), "seconds": str(self.seconds)})
        partial.replace(path)

    def load(self, path: Path) -> None:
        tensors = load_file(path)
        self.network.load(tensors)
        load_optimiser(self.optimiser, tensors, "optimiser")
        with torch.no_grad():
            self.map.weight.copy_(tensors["map"])
        with safetensors.safe_open(path, "pt") as file:
            facts = file.metadata()
        self.epoch, self.seconds = int(facts["epoch"]), float(facts["seconds"])

    def write(self, folder: Path) -> None:
        """The ancestor and its card."""
        within = self.within()
        rows, columns = torch.triu_indices(*within.shape)
        tensors: dict[str, Tensor] = {"within": within[rows, columns].half()}  # it is symmetric
        for number, weight in enumerate(self.network.weights()):
            tensors[f"layer{number}.weight"] = weight.detach().flatten(2).half().contiguous()
        for name, norm in self.network.norms_of(TASK).items():
            tensors |= {f"{name}.{key}": norm.tensors()[key] for key in norm.NAMES}
        data = safetensors.torch.save(tensors)
        write_bytes(folder / f"{self.name}.safetensors", data)
        weights = sum(weight.numel() for weight in self.network.weights())
        write_json(folder / f"{self.name}.json", {
            "name": self.name,
            "sha256": digest(data),
            "architecture": ARCHITECTURE,
            "widths": list(SHAPES[self.name]),
            "weights": weights,
            "trained_on": f"Tiny-ImageNet, {len(self.pictures.train):,} pictures of 180 of its 200 "
            "classes, at 32, 48 and 64 pixels",
            "taught_by": "EfficientNet-Lite0, trained on ImageNet-1k (Apache-2.0), its features",
            "terms": "Tiny-ImageNet and ImageNet are for non-commercial research and education",
            "epochs": self.epoch,
            "seconds": round(self.seconds),
            "accuracy": {view: self.report(view) for view in VIEWS},
            "command": f"python -m rivals.ancestors.train {self.name} --epochs "
            f"{self.wanted.epochs} --lr {self.wanted.lr:g} --teacher WEIGHTS",
        })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rivals.ancestors.train")
    parser.add_argument("name", choices=list(SHAPES))
    parser.add_argument("--teacher", type=Path, required=True, help="weights of EfficientNet-Lite0")
    parser.add_argument(
        "--out", type=Path, default=Path("ancestors"), help="folder of all it writes"
    )
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.1)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    wanted.out.mkdir(parents=True, exist_ok=True)
    pictures = Pictures.load()
    taught = teacher_features(wanted.teacher, pictures.images, wanted.out / "teacher.npy")
    assert taught.shape[1] == FEATURES
    sample = pictures.train[torch.randperm(len(pictures.train), generator=Seed(0).torch())[:20_000]]
    goal = targets(taught, sample)
    training, state = Training(wanted.name, pictures, wanted), wanted.out / f"{wanted.name}.state"
    if state.exists():
        training.load(state)
    while training.epoch < wanted.epochs:
        began = time.monotonic()
        loss = training.run_epoch(goal)
        training.epoch += 1
        training.seconds += time.monotonic() - began
        training.save(state)
        line = f"epoch {training.epoch}: loss {loss:.3f}, {training.seconds:.0f} s"
        if training.epoch % 5 == 0:
            line += f", {json.dumps(training.report(next(iter(VIEWS))))}"
        print(line, flush=True)
    training.write(wanted.out)


if __name__ == "__main__":
    main()
