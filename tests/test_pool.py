"""The unlabelled pool: pictures of every kind, exact neighbours, none used twice."""

import gzip
import re
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rivals.baselines.memory import pool
from rivals.baselines.memory.pool import UnlabelledPool
from rivals.errors import RivalsError
from rivals.seeds import Seed

SHAPE = (3, 4, 5)


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def plain(count=50, shape=SHAPE, seed=0):
    return UnlabelledPool(pixels(count, *shape, seed=seed), shape, "test")


def flat(raw):
    return raw.flatten(1).float()


def reference(queries, images, each, used=()):
    """Query after query, every distance; of equals the first."""
    used, found = set(used), []
    for query in queries.double().flatten(1):
        distance = (images.double().flatten(1) - query).norm(dim=1).tolist()
        free = sorted((d, n) for n, d in enumerate(distance) if n not in used)
        chosen = [n for _, n in free[:each]]
        used.update(chosen)
        found.append(chosen)
    return found


def by_query(neighbours, queries):
    return [neighbours.index[neighbours.query == q].tolist() for q in range(queries)]


# Neighbours --------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 60),
    queries=st.integers(1, 8),
    each=st.integers(1, 20),
    levels=st.integers(1, 255),  # few levels make many equal distances
    held=st.integers(1, 200),
)
def test_neighbours_equal_brute_force_and_none_is_used_twice(count, queries, each, levels, held):
    images = pixels(count, *SHAPE, seed=count) % levels
    asking = torch.from_numpy(pixels(queries, *SHAPE, seed=99) % levels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "DISTANCES", held)  # any chunk gives the same
        patch.setattr(pool, "BLOCK", 7)
        found = UnlabelledPool(images, SHAPE, "test").nearest(asking, flat, each)
    assert by_query(found, queries) == reference(asking, torch.from_numpy(images), each)
    assert len(set(found.index.tolist())) == len(found.index)
    assert found.asked == queries * each
    assert found.short == max(0, queries * each - count)
    distance = (flat(torch.from_numpy(images))[found.index] - flat(asking)[found.query]).norm(dim=1)
    assert torch.allclose(found.distance.float(), distance, atol=1e-3)


def test_real_valued_features_and_images_left_out():
    images = plain(300)
    matrix = torch.randn(60, 8, generator=Seed(0).torch())

    def features(raw):
        return torch.tanh(flat(raw) / 255 @ matrix)

    asking = images.take(torch.tensor([3, 200, 77]))
    left_out = torch.arange(0, 300, 2)
    found = images.nearest(asking, features, 20, without=left_out)
    table = features(images.take(torch.arange(300)))
    assert by_query(found, 3) == reference(features(asking), table, 20, left_out.tolist())
    again = images.nearest(asking, features, 20, without=left_out)
    assert torch.equal(found.index, again.index)
    assert torch.equal(found.distance, again.distance)


def test_each_query_gets_128_by_default():
    found = plain(300).nearest(torch.from_numpy(pixels(2, *SHAPE)), flat)
    assert found.query.bincount().tolist() == [128, 128]


def test_a_pool_that_runs_out_gives_what_is_left():
    found = plain(10).nearest(torch.from_numpy(pixels(5, *SHAPE)), flat, 4)
    assert found.query.bincount(minlength=5).tolist() == [4, 4, 2, 0, 0]
    assert (found.asked, found.short) == (20, 10)


def test_features_are_asked_for_in_batches():
    sizes = []

    def features(raw):
        sizes.append(len(raw))
        return flat(raw)

    plain(600).nearest(torch.from_numpy(pixels(3, *SHAPE)), features, 2)
    assert sizes == [3, 256, 256, 88]


def test_bytes_of_all_and_of_some():
    assert plain(50).bytes() == {"images": 50 * 60}
    assert plain(50).bytes(torch.tensor([1, 2])) == {"images": 2 * 60}


# Folders -----------------------------------------------------------------------------------------


def test_pictures_of_any_mode_and_size_and_other_files_are_counted(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for number, mode in enumerate(("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F")):
        kind = "TIFF" if mode in ("CMYK", "F", "I") else "PNG"
        size = (3 + 5 * number, 40 - 3 * number)
        if mode in ("I;16", "I", "F"):
            kinds = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
            picture = Image.fromarray(
                np.arange(size[0] * size[1]).reshape(size).astype(kinds[mode])
            )
        else:
            picture = Image.new("RGB", size, (200, 100, 50)).convert(mode)
        picture.save(tmp_path / "deep" / f"{number}.{kind.lower()}", kind)
    Image.new("RGB", (9, 9), "white").save(tmp_path / "deep" / "er" / "no-extension", "JPEG")
    good = (tmp_path / "deep" / "4.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "notes.txt").write_text("not a picture")
    (tmp_path / "page.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n")
    images = UnlabelledPool.of_folder(tmp_path, SHAPE)
    assert (len(images), images.skipped) == (11, 4)
    held = images.take(torch.arange(11))
    assert held.shape == (11, *SHAPE)
    assert held.dtype == torch.uint8
    assert held[4, :, 0, 0].tolist() == [200, 100, 50]
    assert held[10].unique().tolist() == [255]
    grey = UnlabelledPool.of_folder(tmp_path, (1, 4, 5))
    assert grey.take(torch.tensor([4])).unique().tolist() == [round(0.299 * 200 + 58.7 + 5.7)]
    assert UnlabelledPool.of_folder(tmp_path, SHAPE).fingerprint == images.fingerprint


def test_deep_grey_is_scaled_and_not_cut_off(tmp_path):
    deep = np.repeat(np.array([[0, 0x4000, 0x8000, 0xFFFF]], np.uint16), 4, 0)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    Image.fromarray(deep.astype(np.float32) / 0xFFFF).save(tmp_path / "float.tiff")
    held = UnlabelledPool.of_folder(tmp_path, (1, 4, 4)).take(torch.tensor([0, 1]))
    assert held[0, 0, 0].tolist() == [0, 63, 127, 255]  # as rivals.io.pictures rounds
    assert held[1, 0, 0].tolist() == [0, 64, 128, 255]


def test_a_picture_that_claims_a_billion_pixels_is_skipped(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    bomb = bytearray((tmp_path / "a.png").read_bytes())
    bomb[16:24] = struct.pack(">II", 40_000, 40_000)
    (tmp_path / "b.png").write_bytes(bomb)
    assert UnlabelledPool.of_folder(tmp_path, SHAPE).skipped == 1


@pytest.mark.parametrize("content", [{}, {"a.txt": b"words"}])
def test_a_folder_without_pictures_is_refused(tmp_path, content):
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(RivalsError, match=f"no picture among its {len(content)} files"):
        UnlabelledPool.of_folder(tmp_path, SHAPE)


def test_what_is_not_a_folder_is_refused(tmp_path):
    with pytest.raises(RivalsError, match="give a folder"):
        UnlabelledPool.of_folder(tmp_path / "nowhere", SHAPE)


# Data sets ---------------------------------------------------------------------------------------


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A release of 20 training and 10 test images, in the official format."""
    monkeypatch.setenv("RIVALS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RIVALS_CACHE", str(tmp_path / "cache"))
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count in (("train", 20), ("t10k", 10)):
        labels = np.arange(count, dtype=np.uint8) % 10
        for kind, array in (
            ("images-idx3", pixels(count, 28, 28, seed=count)),
            ("labels-idx1", labels),
        ):
            header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
            path = raw / f"{name}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes()))
    return torch.from_numpy(pixels(20, 28, 28, seed=20))


def test_a_data_set_lends_its_training_images_only(mnist):
    images = UnlabelledPool.of_dataset("mnist", (1, 28, 28))
    assert torch.equal(images.take(torch.arange(20))[:, 0], mnist)
    assert len(images) == 20
    assert "20 of 60,000" in images.subset
    assert images.fingerprint.startswith("mnist:")


def test_images_of_a_data_set_take_the_shape_of_the_stream(mnist):
    held = UnlabelledPool.of_dataset("mnist", (3, 32, 30)).take(torch.tensor([4, 2]))
    assert held.shape == (2, 3, 32, 30)
    assert torch.equal(held[:, 0], held[:, 2])
    assert abs(float(held[0].float().mean()) - float(mnist[4].float().mean())) < 3


def test_colour_becomes_grey_as_pillow_does_it():
    colour = pixels(6, 3, 8, 8)
    held = UnlabelledPool(colour, (1, 8, 8), "test").take(torch.arange(6))[:, 0].int()
    own = [np.asarray(Image.fromarray(np.moveaxis(c, 0, -1)).convert("L")) for c in colour]
    assert int((held - torch.from_numpy(np.stack(own)).int()).abs().max()) <= 1


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: UnlabelledPool(pixels(0, *SHAPE), SHAPE, ""), "pool is empty"),
        (lambda: UnlabelledPool(pixels(4, 2, 5, 5), SHAPE, ""), "give them as stored"),
        (lambda: UnlabelledPool(pixels(4, *SHAPE).astype(float), SHAPE, ""), "as stored"),
        (lambda: plain(5).nearest(torch.zeros(2, 3, 9, 9).byte(), flat), "raw exemplars"),
        (lambda: plain(5).nearest(torch.zeros(2, *SHAPE), flat), "raw exemplars"),
        (lambda: plain(5).nearest(torch.zeros(2, *SHAPE).byte(), flat, 0), "at least 1"),
        (lambda: plain(5).nearest(torch.zeros(0, *SHAPE).byte(), flat), "at least one"),
        (lambda: plain(5).nearest(torch.zeros(2, *SHAPE).byte(), lambda raw: raw), "flatten"),
        (
            lambda: plain(5).nearest(torch.zeros(2, *SHAPE).byte(), flat, without=torch.arange(5)),
            "larger pool",
        ),
        (lambda: UnlabelledPool(pixels(4, *SHAPE), (2, 4, 5), ""), "input_shape"),
        (lambda: UnlabelledPool.of_dataset("minst", SHAPE), "did you mean mnist"),
    ],
)
def test_bad_input_gets_one_sentence(call, says):
    with pytest.raises(RivalsError, match=re.escape(says)) as error:
        call()
    assert "\n" not in str(error.value)
