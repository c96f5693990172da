"""Broken and hostile files: one sentence each, nothing run, nothing left in the cache."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_releases as releases

from rivals.errors import RivalsError
from rivals.streams.data import pickles
from rivals.streams.data.find import cache_folder
from rivals.streams.data.loading import load

CIFAR = "cifar-100-python.tar.gz"
TINY = "tiny-imagenet-200.zip"
LETTERS = "notMNIST/notMNIST_small.tar.gz"


class Runs:
    """A pickle of this would make a folder when read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.path),)


def truncated_gzip(root: Path) -> None:
    releases.mnist(root)
    path = root / "MNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-5000])


def no_gzip(root: Path) -> None:
    releases.mnist(root)
    (root / "MNIST/raw/train-images-idx3-ubyte.gz").write_bytes(b"<html>not found</html>")


def wrong_magic(root: Path) -> None:
    releases.mnist(root)
    path = root / "MNIST/raw/train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(b"\0\0\x0d\x01" + bytes(40)))


def idx_bomb(root: Path) -> None:
    releases.mnist(root)
    header = bytes((0, 0, 8, 3)) + np.array((2**31, 28, 28), ">u4").tobytes()
    (root / "MNIST/raw/train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(10)))


def idx_too_long(root: Path) -> None:
    releases.mnist(root)
    data = releases.idx(np.zeros(40, np.uint8)) + b"more"
    (root / "MNIST/raw/train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(data))


def idx_other_side(root: Path) -> None:
    releases.mnist(root, side=30)


def idx_missing_class(root: Path) -> None:
    releases.mnist(root)
    labels = releases.idx(np.zeros(40, np.uint8))
    (root / "MNIST/raw/train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def idx_fewer_labels(root: Path) -> None:
    releases.mnist(root)
    labels = releases.idx(np.zeros(39, np.uint8))
    (root / "MNIST/raw/train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def truncated_tar(root: Path) -> None:
    releases.tar(root / CIFAR, releases.cifar100())
    path = root / CIFAR
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def tar_outside(root: Path) -> None:
    releases.tar(root / CIFAR, {"cifar-100-python/../../evil": b"x", **releases.cifar100()})


def tar_absolute(root: Path) -> None:
    releases.tar(root / CIFAR, {"/evil": b"x", **releases.cifar100()})


def tar_link(root: Path) -> None:
    with tarfile.open(root / CIFAR, "w:gz") as archive:
        info = tarfile.TarInfo("cifar-100-python/train")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)


def tar_bomb(root: Path) -> None:
    with tarfile.open(root / CIFAR, "w:gz") as archive:
        info = tarfile.TarInfo("cifar-100-python/train")
        info.size = 64 * 2**20
        archive.addfile(info, io.BytesIO(bytes(info.size)))


def tar_lacks_a_file(root: Path) -> None:
    members = releases.cifar100()
    del members["cifar-100-python/test"]
    releases.tar(root / CIFAR, members)


def _with_train(root: Path, content: object) -> None:
    data = {"cifar-100-python/train": pickle.dumps(content, 2)}
    releases.tar(root / CIFAR, {**releases.cifar100(), **data})


def pickle_runs_code(root: Path) -> None:
    _with_train(root, {"data": Runs(root / "ran"), "fine_labels": []})


def pickle_of_objects(root: Path) -> None:
    _with_train(root, {"data": np.array([{}, []], object), "fine_labels": []})


def pickle_cut(root: Path) -> None:
    members = releases.cifar100()
    members["cifar-100-python/train"] = members["cifar-100-python/train"][:1000]
    releases.tar(root / CIFAR, members)


def pickle_of_a_list(root: Path) -> None:
    _with_train(root, [1, 2, 3])


def cifar_other_size(root: Path) -> None:
    _with_train(root, {"data": releases.pixels(4, 768), "fine_labels": [0, 1, 2, 3]})


def cifar_label_out_of_range(root: Path) -> None:
    _with_train(root, {"data": releases.pixels(4, 3072), "fine_labels": [0, 1, 2, 100]})


def cifar_missing_class(root: Path) -> None:
    labels = [n % 99 for n in range(400)]
    _with_train(root, {"data": releases.pixels(400, 3072), "fine_labels": labels})


def mat_wrong_shape(root: Path) -> None:
    releases.svhn(root, X=releases.pixels(32, 32, 1, 40))


def mat_wrong_labels(root: Path) -> None:
    releases.svhn(root, X=releases.pixels(32, 32, 3, 3), y=np.array([[0], [1], [2]], np.uint8))


def mat_wrong_type(root: Path) -> None:
    releases.svhn(root, X=np.zeros((32, 32, 3, 40)), y=np.ones((40, 1)))


def mat_of_cells(root: Path) -> None:
    cells = np.empty((32, 32, 3, 1), object)
    cells.fill(0)
    releases.svhn(root, X=cells, y=np.ones((1, 1)))


def mat_bomb(root: Path) -> None:
    """330 MB of zeros, which take 1.5 MB."""
    releases.svhn(root)
    packer, zeros = zlib.compressobj(1), bytes(2**20)
    data = b"".join([*(packer.compress(zeros) for _ in range(330)), packer.flush()])
    path = root / "svhn/train_32x32.mat"
    path.write_bytes(path.read_bytes()[:128] + np.array((15, len(data)), "<u4").tobytes() + data)


def zip_of_many_names(root: Path) -> None:
    """An index of 70 MB, of which zipfile would make a gigabyte of objects."""
    entry = b"PK\x01\x02" + bytes(24) + b"\1\0" + bytes(16) + b"a"
    index = entry * 1_500_000
    end = np.array((0, 0xFFFFFFFF, len(index), 0), "<u4").tobytes() + b"\0\0"
    (root / TINY).write_bytes(index + b"PK\x05\x06" + end)


def tar_of_a_large_member(root: Path) -> None:
    info = tarfile.TarInfo("cifar-100-python/train")
    info.size = 200 * 2**20
    header = info.tobuf()
    noise = np.random.default_rng(0).bytes(2**21)  # large enough for the ratio of packed bytes
    (root / CIFAR).write_bytes(gzip.compress(header + noise, 1))


def pipe(root: Path) -> None:
    os.mkfifo(root / CIFAR)


def device(root: Path) -> None:
    (root / CIFAR).symlink_to("/dev/zero")


def mat_cut(root: Path) -> None:
    releases.svhn(root)
    path = root / "svhn/train_32x32.mat"
    path.write_bytes(path.read_bytes()[:2000])


def mat_cut_late(root: Path) -> None:
    releases.svhn(root)
    path = root / "svhn/train_32x32.mat"
    path.write_bytes(path.read_bytes()[:-20])


def mat_no_mat(root: Path) -> None:
    releases.svhn(root)
    (root / "svhn/test_32x32.mat").write_bytes(b"<html>not found</html>" * 20)


def truncated_zip(root: Path) -> None:
    releases.zipped(root / TINY, releases.tiny_imagenet())
    path = root / TINY
    path.write_bytes(path.read_bytes()[:-3000])


def zip_damaged_inside(root: Path) -> None:
    releases.zipped(root / TINY, releases.tiny_imagenet())
    path = root / TINY
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 5000] = bytes(5000)
    path.write_bytes(bytes(data))


def zip_outside(root: Path) -> None:
    releases.zipped(root / TINY, {**releases.tiny_imagenet(), "../evil.txt": b"x"})


def zip_bomb(root: Path) -> None:
    bomb = {"tiny-imagenet-200/wnids.txt": bytes(64 * 2**20)}
    releases.zipped(root / TINY, bomb)


def zip_link(root: Path) -> None:
    with zipfile.ZipFile(root / TINY, "w") as archive:
        info = zipfile.ZipInfo("tiny-imagenet-200/wnids.txt")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")


def image_of_other_size(root: Path) -> None:
    releases.zipped(root / TINY, releases.tiny_imagenet(side=48))


def image_is_no_image(root: Path) -> None:
    members = releases.tiny_imagenet()
    members["tiny-imagenet-200/val/images/val_7.JPEG"] = b"GIF89a"
    releases.zipped(root / TINY, members)


def image_cut(root: Path) -> None:
    members = releases.tiny_imagenet()
    name = "tiny-imagenet-200/val/images/val_7.JPEG"
    members[name] = members[name][:700]
    releases.zipped(root / TINY, members)


def missing_class_in_zip(root: Path) -> None:
    members = releases.tiny_imagenet()
    kept = {name: data for name, data in members.items() if "train/n00000009/" not in name}
    releases.zipped(root / TINY, kept)


def annotation_without_picture(root: Path) -> None:
    members = releases.tiny_imagenet()
    del members["tiny-imagenet-200/val/images/val_3.JPEG"]
    releases.zipped(root / TINY, members)


def empty_folder(root: Path) -> None:
    (root / "tiny-imagenet-200").mkdir(parents=True)


def empty_letters(root: Path) -> None:
    (root / "notMNIST/notMNIST_small").mkdir(parents=True)


def folder_with_link(root: Path) -> None:
    releases.folder(root / "notMNIST", releases.notmnist())
    (root / "notMNIST/notMNIST_small/A/link.png").symlink_to("/etc/passwd")


def letters_of_other_size(root: Path) -> None:
    releases.tar(root / LETTERS, releases.notmnist(side=32))


def missing_letter(root: Path) -> None:
    members = {name: data for name, data in releases.notmnist().items() if "/J/" not in name}
    releases.tar(root / LETTERS, members)


def list_names_a_stranger(root: Path) -> None:
    releases.tar(root / LETTERS, releases.notmnist())
    for name in ("train.txt", "test.txt"):
        (root / "notMNIST" / name).write_text("notMNIST_small/A/stranger.png\n")


def list_overlap(root: Path) -> None:
    releases.tar(root / LETTERS, releases.notmnist())
    for name in ("train.txt", "test.txt"):
        (root / "notMNIST" / name).write_text("notMNIST_small/A/1.png\n")


def omniglot_incomplete(root: Path) -> None:
    for split in ("background", "evaluation"):
        releases.zipped(root / f"omniglot-py/images_{split}.zip", releases.omniglot(split, 5))


def omniglot_empty(root: Path) -> None:
    for split in ("background", "evaluation"):
        releases.zipped(root / f"omniglot-py/images_{split}.zip", {"readme": b""})


CASES = [
    (truncated_gzip, "mnist", r"train-images.* is cut short or damaged"),
    (no_gzip, "mnist", r"is cut short or damaged \(BadGzipFile\)"),
    (wrong_magic, "mnist", r"does not begin as an IDX file of 1 dimensions"),
    (idx_bomb, "mnist", r"declares 1,683,627,180,032 bytes"),
    (idx_too_long, "mnist", r"holds more than the 40 bytes its header declares"),
    (idx_other_side, "mnist", r"images of 30×30 pixels, but 28×28 were expected"),
    (idx_missing_class, "mnist", r"no train image of class '1'"),
    (idx_fewer_labels, "mnist", r"holds 40 images, but .* has 39 labels"),
    (truncated_tar, "cifar-100", r"is cut short or damaged"),
    (tar_outside, "cifar-100", r"'cifar-100-python/\.\./\.\./evil' that points outside"),
    (tar_absolute, "cifar-100", r"'/evil' that points outside"),
    (tar_link, "cifar-100", r"is a link or a device"),
    (tar_bomb, "cifar-100", r"far beyond the 100:1"),
    (tar_lacks_a_file, "cifar-100", r"has no cifar-100-python/test"),
    (pickle_runs_code, "cifar-100", r"holds the global posix.mkdir, .* none of it was run"),
    (pickle_of_objects, "cifar-100", r"holds an array of type 'O8'"),
    (pickle_cut, "cifar-100", r"train is not a readable pickle \(UnpicklingError\)"),
    (pickle_of_a_list, "cifar-100", r"holds a list, but CIFAR's files hold a dictionary"),
    (cifar_other_size, "cifar-100", r"images of 768 bytes, but 32×32×3 = 3,072"),
    (cifar_label_out_of_range, "cifar-100", r"one 'fine_labels' from 0 to 99"),
    (cifar_missing_class, "cifar-100", r"no train image of class 'kind99'"),
    (mat_wrong_shape, "svhn", r"holds X 32×32×1×40, y 40×1, but X 32×32×3×n and y n×1"),
    (mat_wrong_labels, "svhn", r"labels from 0 to 2, but 1 to 10"),
    (mat_wrong_type, "svhn", r"X of type double and y of type double"),
    (mat_of_cells, "svhn", r"X of type cell and y of type double"),
    (mat_bomb, "svhn", r"unpacks to more than [\d,]+ bytes"),
    (zip_of_many_names, "tiny-imagenet", r"has 'index' of 70,500,000 bytes"),
    (tar_of_a_large_member, "cifar-100", r"'cifar-100-python/train' of 209,715,200 bytes"),
    (pipe, "cifar-100", r"is neither a file nor a folder"),
    (device, "cifar-100", r"is neither a file nor a folder"),
    (mat_cut, "svhn", r"holds X 32×32×3×40, but X 32×32×3×n and y n×1 were expected"),
    (mat_cut_late, "svhn", r"is not a readable MATLAB 5 file"),
    (mat_no_mat, "svhn", r"is not a readable MATLAB 5 file"),
    (truncated_zip, "tiny-imagenet", r"is cut short or damaged \(BadZipFile\)"),
    (zip_damaged_inside, "tiny-imagenet", r"is cut short or damaged"),
    (zip_outside, "tiny-imagenet", r"'\.\./evil\.txt' that points outside"),
    (zip_bomb, "tiny-imagenet", r"far beyond the 100:1"),
    (zip_link, "tiny-imagenet", r"is a link or a device"),
    (image_of_other_size, "tiny-imagenet", r"is 48×48 pixels, but 64×64 were expected"),
    (image_is_no_image, "tiny-imagenet", r"val_7\.JPEG is not a JPEG picture that can be read"),
    (image_cut, "tiny-imagenet", r"val_7\.JPEG is not a JPEG picture that can be read"),
    (missing_class_in_zip, "tiny-imagenet", r"no train image of class 'n00000009'"),
    (annotation_without_picture, "tiny-imagenet", r"annotates 'val_3\.JPEG'"),
    (empty_folder, "tiny-imagenet", r"has no tiny-imagenet-200/wnids\.txt"),
    (empty_letters, "notmnist", r"holds no picture, but folders A to J"),
    (folder_with_link, "notmnist", r"'link\.png' that is a link or a device"),
    (letters_of_other_size, "notmnist", r"is 32×32 pixels, but 28×28 were expected"),
    (missing_letter, "notmnist", r"no train image of class 'J'"),
    (list_names_a_stranger, "notmnist", r"names 'A/stranger\.png', which is not in the archive"),
    (list_overlap, "notmnist", r"both name 'A/1\.png'"),
    (omniglot_incomplete, "omniglot", r"has 10 classes here, but 1623 were expected"),
    (omniglot_empty, "omniglot", r"holds no picture named"),
]


@pytest.mark.parametrize(
    ("make", "name", "sentence"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_one_sentence_and_a_clean_cache(
    root: Path, make: Callable[[Path], None], name: str, sentence: str
) -> None:
    make(root)
    tracemalloc.start()
    try:
        with pytest.raises(RivalsError, match=sentence) as caught:
            load(name)
        assert tracemalloc.get_traced_memory()[1] < 150e6
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert not re.search(r"\.\s", text), "more than one sentence"
    assert not (root / "ran").exists(), "the pickle ran"
    decoded = cache_folder() / "decoded"
    assert not decoded.exists() or not list(decoded.iterdir()), "something was left in the cache"


def test_a_mended_file_loads(root: Path) -> None:
    image_cut(root)
    with pytest.raises(RivalsError):
        load("tiny-imagenet")
    releases.zipped(root / TINY, releases.tiny_imagenet())
    assert len(load("tiny-imagenet").test.labels) == 200


@pytest.mark.parametrize(
    "data",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nndarray\n((I1\ntS'O'\ntR.",  # an array made directly
        b"cnumpy\ndtype\n(N}S'_make'\nI1\nstb.",  # changing the reader's stand-in
        b"cnumpy\ndtype\nN}S'code'\nI1\ns\x86b.",
        b"cnumpy.core.multiarray\n_reconstruct\n(tR(I1\n(I3\ntNI0\nS'abc'\ntb.",  # no type
        b"crivals.streams.data.pickles\nos\n.",
        b"\x82\x01.",  # the extension registry
        b"Pid\n.",  # a persistent id
        b"",
    ],
)
def test_pickles_that_reach_for_more(data: bytes) -> None:
    with pytest.raises(RivalsError, match="fetch the official file again"):
        pickles.read(data, "batch")
    good = pickles.read(pickle.dumps({"data": np.arange(6, dtype=np.uint8).reshape(2, 3)}, 2), "b")
    assert good["data"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_fortran_order_and_byte_order_survive() -> None:
    array = np.asfortranarray(np.arange(6, dtype=">u2").reshape(2, 3))
    assert np.array_equal(pickles.read(pickle.dumps({"data": array}, 2), "b")["data"], array)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x80\x02B\xff\xff\xff\x7f.", "not a readable pickle"),  # 2 GB of bytes
        (b"\x80\x02T\xff\xff\xff\x7f.", "not a readable pickle"),
        (b"\x80\x04\x8e\0\0\0\0\1\0\0\0.", "not a readable pickle"),  # 4 GB
        (b"\x80\x04\x95\xff\xff\xff\x7f\0\0\0\0N.", "not a readable pickle"),  # a frame
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "not a readable pickle"),  # a number
        (b"\x80\x02Nr\xff\xff\xff\x0f.", "a memo of more values than it has"),
        (b"\x80\x02Np99999999\n.", "a memo of more values than it has"),
        (b"\x80\x02" + b"}" * 1_200_000 + b".", "more than 1,000,000 instructions"),
        (
            b"\x80\x02(X\x00\x00\x04\x00" + b"a" * 2**18 + b"q\x010"
            + b"c_codecs\nencode\nh\x01X\x06\x00\x00\x00latin1\x86R" * 2000 + b"l.",
            "the same text many times",
        ),
    ],
    ids=["bytes", "string", "bytes8", "frame", "long", "memo", "text memo", "dicts", "encode"],
)  # fmt: skip
def test_pickles_that_ask_for_memory(data: bytes, sentence: str) -> None:
    """Nine bytes once took two gigabytes."""
    tracemalloc.start()
    try:
        with pytest.raises(RivalsError, match=sentence):
            pickles.read(data, "batch")
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", range(5))
def test_pickles_of_every_protocol_are_read(protocol: int) -> None:
    content = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3] * 500,
               "names": [f"name {number}" for number in range(600)], "x": [2**70, 0.5]}  # fmt: skip
    read = pickles.read(pickle.dumps(content, protocol), "batch")
    assert read["data"].tolist() == content["data"].tolist()
    assert read["labels"] == content["labels"]
    assert len(read["names"]) == 600
