"""Exemplars: the policies by their equations, the budget, exact saving, and what is refused."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import Budget
from rivals.baselines.memory.herding import herding
from rivals.errors import RivalsError
from rivals.experiment.checkpoint import Checkpoint, CheckpointFolder
from rivals.seeds import Seed
from rivals.streams.task import Batch, Examples, Preprocessing, Task

SHAPE = (1, 2, 3)
SIZE = 6 + 8  # bytes of an exemplar without extra tensors
ODD_NAMES = ["", "a/b", "extra.0.0", "\x1f\x00", "größer 大", "'; drop", "\ud800"]


def task(name="a", images=12, classes=3, seed=0, mean=0.5):
    """Random pixels; labels in turn."""
    pixels = torch.randint(256, (images, *SHAPE), generator=Seed(seed).torch()).to(torch.uint8)
    train = Examples(pixels, torch.arange(images) % classes)
    names = tuple(f"class {number}" for number in range(classes))
    return Task(name, names, train, train, Preprocessing(255.0, (mean,), (0.25,)))


def batch(of, index):
    index = torch.as_tensor(index)
    raw, labels = of.train.images[index], of.train.labels[index]
    return Batch(of.preprocessing(raw), labels, of.name, index, raw)


def numbered(count, classes=1, name="a"):
    """A task whose image number n has n in its first two pixels."""
    made = task(name, count, classes)
    numbers = torch.arange(count)
    made.train.images[:, 0, 0, 0], made.train.images[:, 0, 0, 1] = numbers // 256, numbers % 256
    return made


def numbers(raw):
    return (raw[:, 0, 0, 0].int() * 256 + raw[:, 0, 0, 1]).tolist()


def stream(memory, of, size=4, extra=None):
    """Offer all training images of a task once, in batches."""
    if all(origin.name != of.name for origin in memory.origins):
        memory.begin(of)
    for index in torch.arange(len(of.train)).split(size):
        memory.observe(batch(of, index), extra and {k: v[index] for k, v in extra.items()})
    return memory


def uniform(counts, runs, kept):
    """The p-value of χ²: each of n examples is kept in a run with chance kept / n.

    One run draws without replacement, which narrows the counts by (1 − kept / n) n / (n − 1).
    """
    n = len(counts)
    expected = runs * kept / n
    statistic = float(((counts - expected) ** 2).sum() / expected)
    return stats.chi2.sf(statistic / ((1 - kept / n) * n / (n - 1)), n - 1)


def pixels_as_features(raw):
    return raw.flatten(1).float()


def same(one, other):
    """Two states, bit by bit; facts as JSON would keep them."""
    assert json.loads(json.dumps(one.facts)) == json.loads(json.dumps(other.facts))
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        assert torch.equal(tensor, other.tensors[name])


# Reservoir ---------------------------------------------------------------------------------------


def test_reservoir_keeps_each_example_of_the_stream_with_equal_chance():
    of, kept, runs = numbered(40), 8, 1500
    counts = torch.zeros(40)
    for seed in range(runs):
        memory = stream(ExemplarMemory(Budget(total=kept), "reservoir", Seed(seed)), of, 40)
        counts[numbers(memory.all("a").raw)] += 1
    assert 1e-3 < uniform(counts, runs, kept) < 1 - 1e-3


def test_reservoir_is_algorithm_r_with_draws_by_seed_and_count():
    of, seed = numbered(200), Seed(5)
    slots = []
    for n in range(1, 201):
        if n <= 16:
            slots.append(n - 1)
            continue
        draw = (seed.child("reservoir", -1, -1, n).value * n) >> 63
        assert 0 <= draw < n
        if draw < 16:
            slots[draw] = n - 1
    for size in (1, 7, 200):  # batches do not matter
        memory = stream(ExemplarMemory(Budget(total=16), "reservoir", seed), of, size)
        assert numbers(memory.all("a").raw) == slots


def test_reservoir_per_class_keeps_so_many_of_each():
    memory = stream(
        ExemplarMemory(Budget(per_class=5), "reservoir", Seed(0)), numbered(90, classes=3)
    )
    assert memory.all("a").labels.bincount().tolist() == [5, 5, 5]


def test_reservoir_stays_uniform_when_larger_exemplars_shrink_it():
    counts, runs = torch.zeros(30), 800
    first, second = numbered(20, name="a"), numbered(10, name="b")
    logits = {"logits": torch.zeros(10, 4)}
    for seed in range(runs):
        memory = ExemplarMemory(Budget(bytes=SIZE * 15), "reservoir", Seed(seed))
        stream(memory, first)
        assert len(memory) == 15
        stream(memory, second, extra=logits)
        assert len(memory) == 15 * SIZE // (SIZE + 16)
        for name, offset in (("a", 0), ("b", 20)):
            if name in memory.tasks():
                counts[[offset + n for n in numbers(memory.all(name).raw)]] += 1
    assert 1e-3 < uniform(counts, runs, 7) < 1 - 1e-3


# Ring --------------------------------------------------------------------------------------------


def test_ring_keeps_the_newest_of_each_class_in_order():
    memory = stream(ExemplarMemory(Budget(per_class=4), "ring", Seed(0)), numbered(31, classes=3))
    kept = memory.all("a")
    for label in range(3):
        newest = [n for n in range(31) if n % 3 == label][-4:]
        assert numbers(kept.raw[kept.labels == label]) == newest


def test_ring_of_a_task_keeps_its_newest_whatever_their_class():
    memory = ExemplarMemory(Budget(total=10), "ring", Seed(0), rings="task")
    stream(memory, numbered(31, classes=3))
    assert numbers(memory.all("a").raw) == list(range(21, 31))
    stream(memory, numbered(31, classes=3, name="b"))
    assert numbers(memory.all("a").raw) == numbers(memory.all("b").raw) == list(range(26, 31))
    by_class = ExemplarMemory(Budget(per_class=2), "ring", Seed(0), rings="task")
    assert numbers(stream(by_class, numbered(31, classes=3)).all("a").raw) == list(range(25, 31))


# Herding -----------------------------------------------------------------------------------------


def reference_herding(features, count):
    """The equation as the paper prints it, candidate by candidate."""
    points = features.double()
    mean, chosen = points.mean(0), []
    for k in range(1, count + 1):
        distance = {
            x: float((mean - (points[x] + points[chosen].sum(0)) / k).norm())
            for x in range(len(points))
            if x not in chosen
        }
        chosen.append(min(distance, key=distance.__getitem__))
    return chosen


@pytest.mark.parametrize("seed", range(5))
def test_herding_equals_its_equation(seed):
    features = torch.randn(40, 6, generator=Seed(seed).torch())
    assert herding(features, 15).tolist() == reference_herding(features, 15)
    assert sorted(herding(features, 99).tolist()) == list(range(40))


def test_herd_of_one_is_the_nearest_to_the_mean_and_equals_go_to_the_first():
    assert herding(torch.tensor([[5.0], [1.0], [1.0], [-3.0]]), 1).tolist() == [1]


def test_a_herd_is_in_order_so_a_new_class_leaves_the_best():
    memory = ExemplarMemory(Budget(total=12), "herding", Seed(0))
    first, second = task("a", 60, 2, seed=1), task("b", 60, 2, seed=2)
    memory.begin(first)
    memory.herd(first, pixels_as_features)
    before = memory.all("a")
    assert before.labels.tolist() == [0] * 6 + [1] * 6
    members = torch.nonzero(first.train.labels == 0).flatten()
    features = torch.nn.functional.normalize(pixels_as_features(first.train.images[members]))
    chosen = members[reference_herding(features, 6)]
    assert torch.equal(before.raw[:6], first.train.images[chosen])
    memory.begin(second)
    memory.herd(second, pixels_as_features, normalised=False)
    after = memory.all("a")
    assert len(memory) == 12
    assert torch.equal(after.raw, before.raw[[0, 1, 2, 6, 7, 8]])


# Budget and bytes --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(["reservoir", "ring", "herding"]),
    rings=st.sampled_from(["class", "task"]),
    budget=st.integers(1, 2000),
    tasks=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=4
    ),
)
def test_a_budget_in_bytes_is_never_exceeded(policy, rings, budget, tasks):
    memory = ExemplarMemory(Budget(bytes=budget), policy, Seed(budget), rings)
    for number, (images, classes, width) in enumerate(tasks):
        of = task(str(number), images, classes, seed=number)
        memory.begin(of)
        extra = {"logits": torch.zeros(images, width)} if width else {}
        refused = ""
        try:
            if policy == "herding":
                memory.herd(of, pixels_as_features, extra)
            else:
                stream(memory, of, 3, extra)
        except RivalsError as error:
            refused = str(error)
        assert not refused or "raise it to at least" in refused
        part = memory.state()
        assert sum(memory.bytes().values()) == sum(t.nbytes for t in part.tensors.values())
        assert sum(memory.bytes().values()) <= budget


def test_the_least_budget_named_in_the_error_is_enough():
    of = task("a", 12, 3)
    for budget in (Budget(bytes=20), Budget(total=2)):
        memory = ExemplarMemory(budget, "ring", Seed(0))
        with pytest.raises(RivalsError, match="each class seen so far") as error:
            stream(memory, of)
        least = int(re.search(r"at least (\d+)", str(error.value))[1])
        kind = "total" if budget.total else "bytes"
        while True:  # as more classes come, it grows
            memory = ExemplarMemory(Budget(**{kind: least}), "ring", Seed(0))
            try:
                stream(memory, of)
                break
            except RivalsError as error:
                least = int(re.search(r"at least (\d+)", str(error))[1])
        assert least == (3 if kind == "total" else 3 * SIZE)


def test_bytes_by_kind():
    of = task("a", 10, 2)
    memory = ExemplarMemory(Budget(total=7), "reservoir", Seed(0))
    stream(memory, of, extra={"logits": torch.zeros(10, 2), "epoch": torch.zeros(10).int()})
    assert memory.bytes() == {"images": 7 * 6, "labels": 7 * 8, "extra": 7 * (8 + 4)}


# Replay ------------------------------------------------------------------------------------------


@pytest.fixture
def filled():
    """Three tasks, prepared differently; extra tensors name the image they belong to."""
    memory = ExemplarMemory(Budget(total=30), "reservoir", Seed(3))
    for number, name in enumerate("abc"):
        of = numbered(40, classes=number + 2, name=name)
        of = Task(name, of.classes, of.train, of.train, Preprocessing(255.0, (number,), (0.5,)))
        logits = torch.arange(40.0)[:, None].repeat(1, number + 2)
        stream(memory, of, extra={"logits": logits} if name != "b" else {})
    return memory


def test_a_sample_is_whole_exemplars_task_by_task(filled):
    batches = filled.sample(12, Seed(1))
    assert [b.task for b in batches] == sorted({b.task for b in batches})
    assert sum(len(b.labels) for b in batches) == 12
    for b in batches:
        number = "abc".index(b.task)
        assert torch.equal(b.images, Preprocessing(255.0, (number,), (0.5,))(b.raw))
        held = numbers(b.raw)
        assert len(set(held)) == len(held)
        assert b.labels.tolist() == [n % (number + 2) for n in held]
        assert b.extra.keys() == ({"logits"} if b.task != "b" else set())
        if b.task != "b":
            assert b.extra["logits"].tolist() == [[float(n)] * (number + 2) for n in held]
        assert torch.equal(b.raw, filled.all(b.task).raw[b.index])


def test_samples_are_uniform_repeatable_and_can_leave_a_task_out(filled):
    first, again = filled.sample(5, Seed(1)), filled.sample(5, Seed(1))
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.raw, other.raw)
    counts = dict.fromkeys("abc", 0)
    for seed in range(600):
        for b in filled.sample(3, Seed(seed)):
            counts[b.task] += len(b.labels)
    expected = [1800 * len(filled.all(name).labels) / 30 for name in "abc"]
    assert stats.chisquare(list(counts.values()), expected).pvalue > 1e-3
    left = filled.sample(999, Seed(0), without="c")
    assert [b.task for b in left] == ["a", "b"]
    assert sum(len(b.labels) for b in left) == 30 - len(filled.all("c").labels)


def test_an_empty_memory_has_nothing_to_replay():
    memory = ExemplarMemory(Budget(total=3), "ring", Seed(0))
    assert memory.sample(4, Seed(0)) == []
    assert memory.tasks() == memory.portions() == []
    assert len(memory) == sum(memory.bytes().values()) == 0


def test_portions_are_tasks_to_train_on(filled):
    for portion in filled.portions():
        kept = filled.all(portion.name)
        assert torch.equal(portion.train.images, kept.raw)
        assert torch.equal(portion.train.labels, kept.labels)
        assert torch.equal(portion.preprocessing(kept.raw), kept.images)


def test_what_is_kept_does_not_change_with_the_batch():
    of = numbered(4)
    memory = stream(ExemplarMemory(Budget(total=4), "ring", Seed(0)), of)
    of.train.images.zero_()
    assert numbers(memory.all("a").raw) == [0, 1, 2, 3]


# Saving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "policy", "rings"),
    [
        (Budget(total=9), "reservoir", "class"),
        (Budget(per_class=2), "reservoir", "class"),
        (Budget(bytes=400), "reservoir", "class"),
        (Budget(total=9), "ring", "class"),
        (Budget(bytes=700), "ring", "task"),
    ],
    ids=str,
)
def test_a_memory_saved_in_mid_stream_goes_on_bit_by_bit(budget, policy, rings, tmp_path):
    def fresh():
        return ExemplarMemory(budget, policy, Seed(7), rings)

    tasks = [task(name, 24, 2, seed=number) for number, name in enumerate(ODD_NAMES[:4])]
    whole, parted = fresh(), fresh()
    for number, of in enumerate(tasks):
        logits = {"z": torch.randn(24, number), "": torch.arange(24)} if number % 2 else {}
        for memory in (whole, parted):
            memory.begin(of)
        for index in torch.arange(24).split(5):
            rows = {name: values[index] for name, values in logits.items()}
            for memory in (whole, parted):
                memory.observe(batch(of, index), dict(reversed(rows.items())))
            folder = CheckpointFolder(tmp_path / "checkpoint")
            folder.save(Checkpoint(0, {}, {}, {"memory": parted.state()}))
            parted = fresh()
            parted.load(folder.load().state["memory"])
            same(whole.state(), parted.state())
    for one, other in zip(whole.sample(5, Seed(0)), parted.sample(5, Seed(0)), strict=True):
        assert torch.equal(one.images, other.images)
        assert one.extra.keys() == other.extra.keys()


def test_a_herd_is_saved_in_order_and_truncated_as_before():
    whole = ExemplarMemory(Budget(total=16), "herding", Seed(0))
    for number, name in enumerate(ODD_NAMES):
        of = task(name, 20, 2, seed=number)
        whole.begin(of)
        whole.herd(of, pixels_as_features)
        parted = ExemplarMemory(Budget(total=16), "herding", Seed(0))
        part = whole.state()
        part.facts = json.loads(json.dumps(part.facts))
        parted.load(part)
        same(whole.state(), parted.state())
        whole = parted
    assert whole.tasks() == ODD_NAMES


def test_a_memory_of_other_settings_is_not_loaded():
    part = ExemplarMemory(Budget(total=9), "ring", Seed(0)).state()
    with pytest.raises(RivalsError, match="settings it was saved with"):
        ExemplarMemory(Budget(total=8), "ring", Seed(0)).load(part)


# What is refused ---------------------------------------------------------------------------------


def broken(**changes):
    good = batch(task("a"), range(4))
    return Batch(**{**vars(good), **changes})


@pytest.mark.parametrize(
    ("wrong", "extra", "says"),
    [
        (broken(task="b"), {}, "call begin"),
        (broken(raw=torch.zeros(4, *SHAPE)), {}, "before preprocessing"),
        (broken(raw=torch.zeros(4, 6, dtype=torch.uint8)), {}, "before preprocessing"),
        (broken(raw=torch.zeros(4, 1, 3, 3, dtype=torch.uint8)), {}, "one shape"),
        (broken(labels=torch.tensor([0])), {}, "one label per image"),
        (broken(labels=torch.tensor([0, 1, 2, 3])), {}, "count from 0"),
        (broken(labels=torch.tensor([0, 1, 2, -1])), {}, "count from 0"),
        (broken(), {"z": torch.zeros(3, 2)}, "one row per image"),
        (broken(), {"z": torch.zeros(())}, "one row per image"),
        (broken(), {"z": torch.zeros(4, 2)}, "same ones"),
    ],
)
def test_wrong_batches_are_refused_and_leave_the_memory_as_it_was(wrong, extra, says):
    memory = stream(ExemplarMemory(Budget(total=5), "reservoir", Seed(0)), task("a"))
    before = memory.state()
    with pytest.raises(RivalsError, match=says) as error:
        memory.observe(wrong, extra)
    assert "\n" not in str(error.value)
    same(before, memory.state())


@pytest.mark.parametrize(
    "budget", [{}, {"total": 0}, {"total": -1}, {"bytes": 5, "total": 5}, {"per_class": -3}]
)
def test_a_budget_is_one_positive_number(budget):
    with pytest.raises(RivalsError, match="exactly one of the three"):
        Budget(**budget)


def test_unknown_words_and_wrong_verbs_are_answered():
    budget, of = Budget(total=9), task("a")
    with pytest.raises(RivalsError, match="did you mean reservoir"):
        ExemplarMemory(budget, "resevoir", Seed(0))
    with pytest.raises(RivalsError, match="use class or task"):
        ExemplarMemory(budget, "ring", Seed(0), rings="image")
    herd = ExemplarMemory(budget, "herding", Seed(0))
    herd.begin(of)
    with pytest.raises(RivalsError, match="call herd"):
        herd.observe(batch(of, [0]))
    with pytest.raises(RivalsError, match="Nothing is kept"):
        herd.all("a")
    with pytest.raises(RivalsError, match="another name"):
        herd.begin(of)
    with pytest.raises(RivalsError, match="at least 1"):
        herd.sample(0, Seed(0))
    for features, says in (
        (lambda raw: raw, "flatten"),
        (lambda raw: raw.flatten(1).float() / 0, "not finite"),
    ):
        with pytest.raises(RivalsError, match=says):
            herd.herd(of, features)
        assert len(herd) == 0
    herd.herd(of, pixels_as_features)
    with pytest.raises(RivalsError, match="herded before"):
        herd.herd(of, pixels_as_features)
    ring = ExemplarMemory(budget, "ring", Seed(0))
    ring.begin(of)
    with pytest.raises(RivalsError, match="call observe"):
        ring.herd(of, pixels_as_features)


def test_a_refused_layout_leaves_the_budget_in_force():
    memory = stream(ExemplarMemory(Budget(bytes=50), "reservoir", Seed(0)), task("a"))
    of = task("b")
    memory.begin(of)
    for _ in range(2):
        with pytest.raises(RivalsError, match="does not hold one image"):
            memory.observe(batch(of, [0]), {"z": torch.zeros(1, 99)})
    assert sum(memory.bytes().values()) <= 50


def test_the_room_below_does_not_import_methods():
    code = (
        "import rivals.baselines.memory.exemplar_memory, sys; "
        "print('rivals.learn.method' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_example_of_the_page_runs():
    page = (Path(__file__).parent.parent / "docs" / "memory.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    names: dict[str, object] = {}  # a page is one script
    for block in blocks:
        exec(block, names)


def test_ranks_of_a_herd_do_not_depend_on_its_length():
    features = torch.randn(25, 3, generator=Seed(9).torch())
    herds = [herding(features, count).tolist() for count in range(1, 26)]
    assert all(longer[:-1] == shorter for shorter, longer in pairwise(herds))
