"""Small releases in the official formats, of random pixels, for tests that need no real data."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WNIDS = [f"n{number:08d}" for number in range(200)]


def pixels(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def picture(array: np.ndarray[Any, Any], kind: str) -> bytes:
    held = io.BytesIO()
    Image.fromarray(array).save(held, kind)
    return held.getvalue()


def idx(array: np.ndarray[Any, Any]) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
    return header + array.tobytes()


def mnist(root: Path, folder: str = "MNIST", packed: bool = True, side: int = 28) -> None:
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for name, count, seed in (("train", 40, 1), ("t10k", 20, 2)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, data in (
            ("images-idx3", idx(pixels(count, side, side, seed=seed))),
            ("labels-idx1", idx(labels)),
        ):
            path = raw / f"{name}-{kind}-ubyte"
            if packed:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(data))
            else:
                path.write_bytes(data)


def tar(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def zipped(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def folder(root: Path, members: dict[str, bytes]) -> None:
    for name, data in members.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def cifar10() -> dict[str, bytes]:
    members = {"batches.meta": {"label_names": [f"kind{number}" for number in range(10)]}}
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        labels = [label % 10 for label in range(20)]
        members[name] = {"data": pixels(20, 3072, seed=number), "labels": labels}
    return {f"cifar-10-batches-py/{name}": pickle.dumps(v, 2) for name, v in members.items()}


def cifar100() -> dict[str, bytes]:
    members: dict[str, Any] = {"meta": {"fine_label_names": [f"kind{n}" for n in range(100)]}}
    for name, count in (("train", 400), ("test", 200)):
        labels = [label % 100 for label in range(count)]
        members[name] = {"data": pixels(count, 3072, seed=count), "fine_labels": labels}
    return {f"cifar-100-python/{name}": pickle.dumps(v, 2) for name, v in members.items()}


def svhn(root: Path, **changed: np.ndarray[Any, Any]) -> None:
    from scipy.io import savemat

    (root / "svhn").mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 40), ("test", 20)):
        labels = (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]
        content = {"X": pixels(32, 32, 3, count, seed=count), "y": labels, **changed}
        savemat(root / f"svhn/{name}_32x32.mat", content, do_compression=True)


def notmnist(side: int = 28, each: int = 6) -> dict[str, bytes]:
    return {
        f"notMNIST_small/{letter}/{number}.png": picture(
            pixels(side, side, seed=100 * index + number), "PNG"
        )
        for index, letter in enumerate("ABCDEFGHIJ")
        for number in range(each)
    }


def omniglot(split: str, characters: int, drawings: int = 1, side: int = 105) -> dict[str, bytes]:
    """`characters` in alphabets of 40; every picture differs."""
    return {
        f"images_{split}/{split}{number // 40:02d}/character{number % 40 + 1:02d}/"
        f"{number:04d}_{drawing + 1:02d}.png": picture(
            np.kron(
                pixels(15, 15, seed=number * 20 + drawing) // 128 * 255, np.ones((7, 7), int)
            ).astype(np.uint8)[:side, :side],
            "PNG",
        )
        for number in range(characters)
        for drawing in range(drawings)
    }


def tiny_imagenet(side: int = 64) -> dict[str, bytes]:
    """Two training images and one validation image a class; the first class is grey."""
    top = "tiny-imagenet-200"
    members = {
        f"{top}/wnids.txt": "\n".join(WNIDS).encode(),
        f"{top}/words.txt": b"n00000000\tgoldfish, Carassius auratus\nn00000001\teft\n",
    }
    lines = []
    for label, wnid in enumerate(WNIDS):
        shape = (side, side) if label == 0 else (side, side, 3)
        for number in range(2):
            data = picture(pixels(*shape, seed=3 * label + number) // 64, "JPEG")
            members[f"{top}/train/{wnid}/images/{wnid}_{number}.JPEG"] = data
        name = f"val_{label}.JPEG"
        members[f"{top}/val/images/{name}"] = picture(pixels(*shape, seed=3 * label + 2), "JPEG")
        lines.append(f"{name}\t{wnid}\t0\t0\t62\t62")
    members[f"{top}/val/val_annotations.txt"] = "\n".join(lines).encode()
    return members


def everything(root: Path) -> None:
    """All eight data sets, packed."""
    mnist(root)
    mnist(root, "FashionMNIST")
    tar(root / "cifar-10-python.tar.gz", cifar10())
    tar(root / "cifar-100-python.tar.gz", cifar100())
    svhn(root)
    tar(root / "notMNIST/notMNIST_small.tar.gz", notmnist())
    zipped(root / "omniglot-py/images_background.zip", omniglot("background", 964))
    zipped(root / "omniglot-py/images_evaluation.zip", omniglot("evaluation", 659))
    zipped(root / "tiny-imagenet-200.zip", tiny_imagenet())
