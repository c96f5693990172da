"""Batches: every image once, episodes balanced, augmentation per image, all by the seed."""

import pytest
import torch

from rivals.seeds import Seed
from rivals.streams.augment import augment, random_crop, random_flip
from rivals.streams.batching import Batching, epoch
from toys import lessons, shortened

TASK = lessons(1, "digits-permuted")[0].task


@pytest.mark.parametrize("images", [1, 2, 39, 40, 41, 42, 80, 81, 200])
def test_an_epoch_has_every_image_once_and_no_single_one_left_over(images):
    task, batching = shortened(TASK, images), Batching(40)
    found = list(epoch([task], batching, Seed(0)))
    assert len(found) == batching.count(task)
    assert sorted(torch.cat([b.index for b in found]).tolist()) == list(range(images))
    assert images == 1 or min(len(b.labels) for b in found) > 1
    for batch in found:
        assert torch.equal(batch.raw, task.train.images[batch.index])
        assert torch.equal(batch.images, task.preprocessing(batch.raw))


def test_an_epoch_goes_on_where_it_stopped():
    other = shortened(TASK, 100, name="other")
    for batching in (Batching(16), Batching(16, shots=2, ways=3, augmentation="crop-flip")):
        whole = list(epoch([TASK, other], batching, Seed(3)))
        rest = list(epoch([TASK, other], batching, Seed(3), first=5))
        assert len(rest) == len(whole) - 5
        for a, b in zip(whole[5:], rest, strict=True):
            assert a.task == b.task
            assert torch.equal(a.images, b.images)


def test_seeds_and_portions_shuffle():
    one, again, other = ([b.index for b in epoch([TASK], Batching(16), Seed(s))] for s in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one[0], other[0])
    names = [b.task for b in epoch([TASK, shortened(TASK, 300, "x")], Batching(16), Seed(1))]
    assert names != sorted(names)
    assert len(set(names)) == 2


def test_episodes_have_way_classes_and_shots_images():
    for batch in epoch([TASK], Batching(40, shots=4, ways=5), Seed(0)):
        counts = torch.bincount(batch.labels, minlength=10)
        assert sorted(counts.tolist()) == [0] * 5 + [4] * 5
    assert Batching(40, shots=10).count(TASK) == len(TASK.train) // 100
    few = shortened(TASK, 30)
    assert all(len(b.labels) <= 30 for b in epoch([few], Batching(40, shots=20), Seed(0)))


def test_crops_are_places_in_the_padded_picture():
    images = torch.randint(0, 255, (50, 3, 8, 8), dtype=torch.uint8)
    cropped = random_crop(images, 2, torch.Generator().manual_seed(0))
    assert cropped.shape == images.shape
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    found = set()
    for old, new in zip(padded, cropped, strict=True):
        places = [
            (y, x) for y in range(5) for x in range(5)
            if torch.equal(old[:, y : y + 8, x : x + 8], new)
        ]  # fmt: skip
        assert places
        found.update(places)
    assert len(found) > 12


def test_flips_mirror_about_half_of_the_pictures():
    images = torch.randint(0, 255, (400, 1, 4, 4), dtype=torch.uint8)
    flipped = random_flip(images, torch.Generator().manual_seed(0))
    mirrored = [bool(torch.equal(a, b.flip(-1))) for a, b in zip(images, flipped, strict=True)]
    kept = [bool(torch.equal(a, b)) for a, b in zip(images, flipped, strict=True)]
    assert all(a or b for a, b in zip(mirrored, kept, strict=True))
    assert 150 < sum(mirrored) < 250


def test_augmentation_none_changes_nothing():
    images = torch.randint(0, 255, (5, 1, 4, 4), dtype=torch.uint8)
    assert torch.equal(augment(images, "none", torch.Generator()), images)
