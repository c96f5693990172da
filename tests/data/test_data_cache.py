"""The cache: decoded once, whole or not at all, mended when damaged, never poisoned."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_releases as releases

from rivals.errors import RivalsError
from rivals.streams.data import cache, loading
from rivals.streams.data.catalogue import dataset
from rivals.streams.data.find import cache_folder
from rivals.streams.data.loading import load
from rivals.streams.data.status import survey


def entries() -> list[str]:
    return sorted(os.listdir(cache_folder() / "decoded"))


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setitem(loading.READERS, "mnist", never)  # type: ignore[arg-type]


def python(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_second_start_reads_no_source(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases.mnist(root)
    first = load("mnist")
    forbid(monkeypatch)
    monkeypatch.setattr(
        "rivals.streams.data.checksums.file_md5", lambda path: pytest.fail("summed again")
    )
    second = load("mnist")
    assert isinstance(second.train.images, np.memmap)
    assert not second.train.images.flags.writeable
    assert np.array_equal(first.train.images, second.train.images)
    assert first.fingerprint == second.fingerprint


def test_touched_source_is_summed_but_not_decoded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases.mnist(root)
    first = load("mnist")
    forbid(monkeypatch)
    os.utime(root / "MNIST/raw/train-images-idx3-ubyte.gz", (1, 1))
    assert load("mnist").fingerprint == first.fingerprint


def test_changed_source_is_another_entry(root: Path) -> None:
    releases.tar(root / "notMNIST/notMNIST_small.tar.gz", releases.notmnist())
    first = load("notmnist")
    releases.tar(root / "notMNIST/notMNIST_small.tar.gz", releases.notmnist(each=7))
    second = load("notmnist")
    assert first.fingerprint != second.fingerprint
    assert len(second.train.labels) + len(second.test.labels) == 70
    assert len(entries()) == 2


def cut(folder: Path) -> None:
    path = folder / "train-images.npy"
    path.write_bytes(path.read_bytes()[:-100])


def flip(folder: Path) -> None:
    path = folder / "train-images.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, (1, 1))


def lose(folder: Path) -> None:
    (folder / "test-labels.npy").unlink()


def scribble(folder: Path) -> None:
    (folder / "entry.json").write_text('{"format": 1')


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize("damage", [cut, flip, lose, scribble, empty])
def test_damage_is_seen_and_mended(root: Path, damage: Callable[[Path], None]) -> None:
    releases.mnist(root)
    load("mnist")
    (name,) = entries()
    damage(cache_folder() / "decoded" / name)
    data = load("mnist")
    assert np.array_equal(data.train.images[:, 0], releases.pixels(40, 28, 28, seed=1))
    assert entries() == [name]


def test_damage_that_hides_its_time_is_found_by_the_check(root: Path) -> None:
    releases.mnist(root)
    load("mnist")
    path = cache_folder() / "decoded" / entries()[0] / "train-images.npy"
    changed = path.stat().st_mtime_ns
    flip(path.parent)
    os.utime(path, ns=(changed, changed))
    assert survey(dataset("mnist"), thorough=True).state == "subset"
    expected = releases.pixels(40, 28, 28, seed=1)
    assert np.array_equal(load("mnist").train.images[:, 0], expected)


def test_an_interrupted_decode_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases.mnist(root)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "_write_array", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load("mnist")
    assert entries() == []


def test_what_a_killed_process_left_is_swept(root: Path) -> None:
    releases.mnist(root)
    stale = cache_folder() / "decoded" / ".mnist-x.999999999.part"
    stale.mkdir(parents=True)
    (stale / "train-images.npy").write_bytes(b"half")
    load("mnist")
    assert not stale.exists()


def test_no_room_is_one_sentence(root: Path) -> None:
    releases.mnist(root)
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from rivals.streams.data.loading import load\n"
        "from rivals.errors import RivalsError\n"
        "try: load('mnist')\n"
        "except RivalsError as error: print(error)\n"
    )
    said, _ = python(code).communicate(timeout=60)
    assert "could not be written (File too large); make room there or set $RIVALS_CACHE" in said
    assert entries() == []
    assert len(load("mnist").train.labels) == 40


def test_a_cache_that_is_a_file_is_one_sentence(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases.mnist(root)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RIVALS_CACHE", str(tmp_path / "file"))
    with pytest.raises(RivalsError, match=r"could not be written .* set \$RIVALS_CACHE"):
        load("mnist")


def test_two_processes_at_once_agree(root: Path) -> None:
    releases.zipped(root / "tiny-imagenet-200.zip", releases.tiny_imagenet())
    code = (
        "from rivals.streams.data.loading import load\n"
        "data = load('tiny-imagenet'); print(int(data.train.images.sum()))"
    )
    both = [python(code) for _ in range(2)]
    said = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0] == said[1]
    assert len(entries()) == 1


def test_data_root_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RIVALS_DATA", str(tmp_path / "file"))
    with pytest.raises(RivalsError, match="is a file, but it must be a folder"):
        load("mnist")


def test_the_cache_folder_is_searched_last(root: Path) -> None:
    releases.mnist(cache_folder() / "data")
    assert load("mnist").train.images.shape == (40, 1, 28, 28)
    releases.mnist(root, packed=False)
    assert survey(dataset("mnist")).root == root
