"""Each official format, packed and unpacked, gives the arrays that went in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_releases as releases

from rivals.errors import RivalsError
from rivals.streams.data.loading import Loaded, load


def same(one: Loaded, other: Loaded) -> bool:
    return all(
        np.array_equal(a.images, b.images) and np.array_equal(a.labels, b.labels)
        for a, b in ((one.train, other.train), (one.test, other.test))
    )


def test_idx_packed_and_plain(root: Path) -> None:
    releases.mnist(root)
    packed = load("mnist")
    assert packed.train.images.dtype == np.uint8
    assert packed.train.labels.dtype == np.int64
    assert np.array_equal(packed.train.images[:, 0], releases.pixels(40, 28, 28, seed=1))
    assert packed.test.labels.tolist() == [n % 10 for n in range(20)]
    for path in (root / "MNIST/raw").iterdir():
        path.unlink()
    (root / "MNIST/raw").rmdir()
    (root / "MNIST").rmdir()
    releases.mnist(root, packed=False)
    plain = load("mnist")
    assert same(packed, plain)
    assert plain.subset == "MNIST: 40 of 60,000 training images and 20 of 10,000 test images"


@pytest.mark.parametrize("name", ["cifar-10", "cifar-100"])
def test_cifar_archive_and_folder(root: Path, name: str) -> None:
    members = releases.cifar10() if name == "cifar-10" else releases.cifar100()
    releases.tar(root / f"{name}-python.tar.gz", members)
    packed = load(name)
    seed = 0 if name == "cifar-10" else 400
    count = 20 if name == "cifar-10" else 400
    first = releases.pixels(count, 3072, seed=seed)[0].reshape(3, 32, 32)
    assert np.array_equal(packed.train.images[0], first)
    assert packed.classes[:2] == ("kind0", "kind1")
    (root / f"{name}-python.tar.gz").unlink()
    releases.folder(root, members)
    assert same(packed, load(name))


def test_cifar_subset_is_told_by_class(root: Path) -> None:
    releases.tar(root / "cifar-100-python.tar.gz", releases.cifar100())
    sentence = "CIFAR-100: 4 of 500 training images a class and 2 of 100 test images a class"
    assert load("cifar-100").subset == sentence


def test_svhn_ten_is_zero_and_axes_move(root: Path) -> None:
    releases.svhn(root)
    data = load("svhn")
    raw = releases.pixels(32, 32, 3, 40, seed=40)
    assert np.array_equal(data.train.images[7], raw[..., 7].transpose(2, 0, 1))
    assert data.train.labels[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_notmnist_draws_a_split_or_takes_the_lists(root: Path) -> None:
    members = releases.notmnist()
    releases.tar(root / "notMNIST/notMNIST_small.tar.gz", members)
    drawn = load("notmnist")
    assert np.bincount(drawn.train.labels).tolist() == [5] * 10
    assert np.bincount(drawn.test.labels).tolist() == [1] * 10
    names = sorted(members)
    test = [name for name in names if name.endswith("/3.png")]
    train = [name for name in names if name not in test]
    (root / "notMNIST/train.txt").write_text("\n".join(train))
    (root / "notMNIST/test.txt").write_text("\n".join(test) + "\n")
    listed = load("notmnist")
    assert listed.fingerprint != drawn.fingerprint
    assert np.array_equal(listed.test.images[2, 0], releases.pixels(28, 28, seed=203))
    (root / "notMNIST/notMNIST_small.tar.gz").unlink()
    releases.folder(root / "notMNIST", members)
    assert same(listed, load("notmnist"))


def test_notmnist_skips_the_two_empty_files_of_the_release(root: Path) -> None:
    empty = {"notMNIST_small/F/Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png": b""}
    releases.tar(root / "notMNIST/notMNIST_small.tar.gz", {**releases.notmnist(), **empty})
    data = load("notmnist")
    assert len(data.train.labels) + len(data.test.labels) == 60


def test_omniglot_sorted_and_scaled_with_drawings_known(root: Path) -> None:
    background = releases.omniglot("background", 964)
    extra = releases.omniglot("background", 1, drawings=3)
    releases.zipped(root / "omniglot-py/images_background.zip", {**background, **extra})
    releases.folder(root / "omniglot-py", releases.omniglot("evaluation", 659))
    data = load("omniglot")
    assert data.train.images.shape == (966, 1, 32, 32)
    assert data.classes[0] == "background00-01"
    assert data.classes[964] == "evaluation00-01"
    assert data.train.extra["drawings"][:4].tolist() == [0, 1, 2, 0]
    assert data.train.labels[:4].tolist() == [0, 0, 0, 1]
    assert data.test.labels[0] == 964
    assert data.test.labels[-1] == 1622


def test_tiny_imagenet_zip_folder_size_and_grey(root: Path) -> None:
    members = releases.tiny_imagenet()
    releases.zipped(root / "tiny-imagenet-200.zip", members)
    packed = load("tiny-imagenet")
    assert packed.train.images.shape == (400, 3, 64, 64)
    assert packed.test.images.shape == (200, 3, 64, 64)
    assert packed.classes[:3] == ("goldfish", "eft", "n00000002")
    grey = packed.train.images[0]
    assert np.array_equal(grey[0], grey[1])
    assert np.array_equal(grey[1], grey[2])
    assert load("tiny-imagenet", 32).test.images.shape == (200, 3, 32, 32)
    (root / "tiny-imagenet-200.zip").unlink()
    releases.folder(root, members)
    assert same(packed, load("tiny-imagenet"))


def test_missing_file_names_it_and_the_command(root: Path) -> None:
    releases.mnist(root)
    (root / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(RivalsError, match=r"t10k-labels.*rivals data get mnist"):
        load("mnist")


def test_unknown_name_lists_the_nearest(root: Path) -> None:
    with pytest.raises(RivalsError, match="did you mean cifar-100 or"):
        load("cifar100")
