"""`rivals join`: one model with the tasks of two, every ticket bit for bit."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rivals
from crash_points import crashes, read_tree, recorded, write_tree
from rivals.model import joining, limits
from rivals.model.checking import check
from rivals.model.dropping import drop
from rivals.model.folder import ModelFolder
from rivals.model.learning import learn
from teaching import digits, folder, marks, numbers, teach
from toys import lessons, make, same_bits, ticket_bits
from toys import teach as trained

Refused = Callable[..., str]
Accepted = Callable[..., str]
TINY = {"ancestor": "tiny", "size": 8, "grey": True, "epochs": 1}


def arrays(*classes: int, first: int = 0) -> tuple[np.ndarray, list[str]]:
    """Sixteen pictures of each of these digits."""
    found = [n for label in classes for n in numbers(label)[first : first + 16]]
    pixels = (digits().images[found] * 15).astype(np.uint8)
    return pixels, [f"digit {digits().target[n]}" for n in found]


@dataclass
class Pair:
    """Two models with the same ancestor, and the one that was made of them."""

    first: Path
    second: Path
    both: Path
    joined: Any


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("joining")


@pytest.fixture(scope="module")
def pair(place: Path) -> Pair:
    """Tasks in closed form and tasks with trained units of their own, in both."""
    for number, name in enumerate(("first", "second")):
        for task, new in (("closed", 0.0), ("trained", 1.0)):
            start = TINY if task == "closed" else {"epochs": 1}
            learn(arrays(number, 5 + number), place / name, f"{task} {number}", new=new, **start)
    model = rivals.Model(place / "first")
    joined = model.join(place / "second", place / "both")
    return Pair(place / "first", place / "second", place / "both", joined)


@pytest.fixture(scope="module")
def bare(place: Path) -> Pair:
    """Models without ancestor, of different seeds; two tasks each, the later inherits."""
    for number, names in enumerate(("ab", "cd")):
        for each in names:
            pictures = folder(place / each, (2 * number, 2 * number + 1), 6)
            seed = {} if each in "bd" else {"seed": number}
            teach(pictures, place / f"bare{number}", epochs=1, **seed)
    paths = place / "bare0", place / "bare1", place / "bare"
    joined = joining.join(*paths)
    return Pair(*paths, joined)


@pytest.fixture(params=["pair", "bare"])
def any_pair(request: pytest.FixtureRequest) -> Pair:
    found: Pair = request.getfixturevalue(request.param)
    return found


def logits(model: Path) -> dict[str, torch.Tensor]:
    """What every ticket, as it is cut, and the network itself answer to some pictures."""
    opened = ModelFolder.open(model)
    images = torch.from_numpy(np.stack([digits().images[:20] * 15]).astype(np.uint8)).movedim(0, 1)
    found = {}
    for task in opened.tasks:
        found[task.name] = opened.ticket(task.name).logits(images)
        prepared = opened.method.known[task.name].preprocessing(images)
        found[f"{task.name} in the network"] = opened.method.logits(prepared, task.name)
    return found


def test_every_ticket_keeps_every_bit(any_pair: Pair) -> None:
    first, second = logits(any_pair.first), logits(any_pair.second)
    assert len(first) == 4
    assert same_bits(logits(any_pair.both), {**first, **second})
    assert marks(any_pair.both) == {**marks(any_pair.first), **marks(any_pair.second)}
    assert check(any_pair.both).whole


def test_facts_and_history_go_on(any_pair: Pair) -> None:
    first, second, both = map(ModelFolder.open, (any_pair.first, any_pair.second, any_pair.both))
    for old, new in zip([*first.tasks, *second.tasks], both.tasks, strict=True):
        assert old.classes == new.classes
        assert (old.name, old.accuracy, old.weights) == (new.name, new.accuracy, new.weights)
        assert old.inherited_from == new.inherited_from
    assert any_pair.joined.tasks == tuple(task.name for task in both.tasks)
    assert any_pair.joined.added == tuple(task.name for task in second.tasks)
    history = first.description.history
    assert history is not None
    after = both.description.history
    assert after is not None
    then = after.at(history.newest)  # of the first model: `rivals check --since` proves its tickets
    assert then is not None
    assert list(then.marks.values()) == [both.mark(task.name) for task in first.tasks]


def test_units_of_the_second_find_room(bare: Pair) -> None:
    """Where both used the same unit, that of the second moved; what its tasks share they share."""
    first, second, both = map(ModelFolder.open, (bare.first, bare.second, bare.both))
    for number in range(2):
        taken = [set(won) for won in zip(*(first.winners(t)[number] for t in "ab"), strict=True)]
        old = np.array([second.winners(t)[number] for t in "cd"])
        new = np.array([both.winners(t)[number] for t in "cd"])
        for block, units in enumerate(taken):
            assert not units & set(new[:, block].tolist())
        assert ((old[0] == old[1]) == (new[0] == new[1])).all()
        assert [first.winners(t)[number] for t in "ab"] == [both.winners(t)[number] for t in "ab"]


def test_dropping_from_a_joined_model_is_exact(any_pair: Pair, tmp_path: Path) -> None:
    names = [task.name for task in ModelFolder.open(any_pair.both).tasks]
    kept, copied = marks(any_pair.both), tmp_path / "model"
    shutil.copytree(any_pair.both, copied)
    for name in names[1:3]:
        drop(copied, name)
        del kept[name]
        assert marks(copied) == kept


def test_naming_uses_the_statistics_of_both(pair: Pair) -> None:
    """The same answers as if the second model's tasks had been learned in the first."""
    model = rivals.Model(pair.both)
    pixels = arrays(1, 6, first=60)[0]
    answers = model.predict(list(pixels))
    assert {answer.task for answer in answers} & {"closed 1", "trained 1"}
    given = rivals.Model(pair.second).predict(list(pixels), task="closed 1")
    known = model.predict(list(pixels), task="closed 1")
    assert [a.top(2) for a in known] == [a.top(2) for a in given]


def test_a_joined_model_learns_on(pair: Pair, tmp_path: Path) -> None:
    shutil.copytree(pair.both, tmp_path / "model")
    before = marks(pair.both)
    learn(arrays(3, 4), tmp_path / "model", "more", epochs=1, new=1.0)
    after = marks(tmp_path / "model")
    assert {name: after[name] for name in before} == before


@pytest.mark.slow  # its quick brothers compare the tickets, which are all that an export is made of
def test_exports_are_equal(bare: Pair, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: rivals[export]")
    for model, name in ((bare.second, "one.onnx"), (bare.both, "other.onnx")):
        rivals.Model(model).export("d", tmp_path / name)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "other.onnx").read_bytes()


def test_the_network_grows_where_there_is_no_room() -> None:
    """Blocks of two units, both in use in both networks: two more are needed."""
    first, second = (make(network={"architecture": "mlp", "widths": (16, 16), "units": 2},
                          seed=seed, epochs=1) for seed in (0, 1))  # fmt: skip
    tasks = [lesson.task for lesson in lessons(4)]
    for method, own in ((first, tasks[:2]), (second, tasks[2:])):
        for task in own:
            trained(method, task)
    kept = {t.name: ticket_bits(m, t.name) for m, own in ((first, tasks[:2]), (second, tasks[2:]))
            for t in own}  # fmt: skip
    before = [rivals_.units for rivals_ in first.network.rivals()]
    names = [task.name for task in tasks[2:]]
    moves = joining.make_room(first.network, second.network, names)
    for name in names:
        joining.copy_task(first.network, second.network, name, name, moves)
    after = [rivals_.units for rivals_ in first.network.rivals()]
    assert all(now > was for now, was in zip(after, before, strict=True))
    for name, bits in kept.items():
        assert same_bits(dict(first.network.cut(name).state_dict()), bits)


# What cannot be joined, or needs a word -----------------------------------------------------------


def test_a_task_that_both_have(bare: Pair, tmp_path: Path, refused: Refused) -> None:
    """Copies that went on learning: what is the same is taken once."""
    one, other = tmp_path / "one", tmp_path / "other"
    shutil.copytree(bare.first, one)
    shutil.copytree(bare.first, other)
    teach(folder(tmp_path / "e", (4, 5), 6), other, epochs=1)
    teach(folder(tmp_path / "x" / "e", (6, 7), 6), one, epochs=1)
    out = tmp_path / "out"
    assert "Both models have a task 'e', and they are different" in refused(
        "join", one, other, "--out", out
    )
    assert "task 'a', and they" in refused("join", one, other, "--out", out, "--rename", "e=a")
    assert "OLD=NEW" in refused("join", one, other, "--out", out, "--rename", "e")
    assert "no task named 'f'" in refused("join", one, other, "--out", out, "--rename", "f=g")
    assert "look like a path" in refused("join", one, other, "--out", out, "--rename", "e=../g")
    assert "under another name" in refused("join", one, other, "--out", out, "--rename", "e=g",
                                           "--rename", "a=h")  # fmt: skip
    assert "all tasks" in refused("join", one, bare.first, "--out", out)
    assert not out.exists()
    joined = rivals.Model(one).join(other, out, rename={"e": "f"})
    assert (joined.added, joined.same) == (("f",), ("a", "b"))
    found, theirs = marks(out), marks(other)
    assert found == {**marks(one), "f": theirs["e"]}


def test_models_that_do_not_fit(pair: Pair, bare: Pair, tmp_path: Path, refused: Refused) -> None:
    out = tmp_path / "out"
    line = refused("join", pair.first, bare.first, "--out", out)
    assert "different ancestors ('tiny'" in line
    assert "and none)" in line
    other = tmp_path / "other"
    teach(folder(tmp_path / "e", (4, 5), 6), other, epochs=1, size=9)
    line = refused("join", bare.first, other, "--out", out)
    assert "different networks" in line
    assert "8 × 8" in line
    assert "9 × 9" in line
    assert "There is no model" in refused("join", pair.first, tmp_path / "no", "--out", out)
    assert "is there already" in refused("join", bare.first, bare.second, "--out", other)
    assert not out.exists()


def test_more_units_than_are_read_again(
    bare: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(limits, "UNITS", 3)
    line = refused("join", bare.first, bare.second, "--out", tmp_path / "out")
    assert "more than are read again" in line
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_nothing(
    bare: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    """A ticket that came out different would be noticed before the model has its name."""
    real = joining.copy_task

    def wrong(ours: Any, theirs: Any, task: str, name: str, moves: Any) -> None:
        real(ours, theirs, task, name, moves)
        with torch.no_grad():
            ours.heads[name].bias.add_(1)

    monkeypatch.setattr(joining, "copy_task", wrong)
    line = refused("join", bare.first, bare.second, "--out", tmp_path / "out")
    assert "would differ" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc/self/fd")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib kept its own functions of os")
def test_a_kill_leaves_nothing_or_all(bare: Pair, tmp_path: Path) -> None:
    """At every moment, with and without power; the two models are only read."""
    place, sources = tmp_path / "place", (bare.first, bare.second)
    place.mkdir()
    before = [read_tree(source) for source in sources]
    with recorded(place) as recorder:
        joining.join(*sources, place / "both")
    assert [read_tree(source) for source in sources] == before
    found = set()
    for number, crash in enumerate(crashes(recorder.points)):
        disk = write_tree(crash.tree, tmp_path / f"disk{number}", ended=2**22 + 1)
        visible = [path.name for path in disk.iterdir() if not path.name.startswith(".")]
        if visible:
            assert visible == ["both"]
            assert marks(disk / "both") == marks(bare.both)
        found.add(bool(visible))
        shutil.rmtree(disk)
    assert found == {False, True}


def test_the_command(bare: Pair, tmp_path: Path, accepted: Accepted) -> None:
    words = ("join", bare.first, bare.second, "--out")
    assert "4 tasks" in accepted(*words, tmp_path / "one")
    said = json.loads(accepted(*words, tmp_path / "two", "--json", "--rename", "c=new"))
    assert said["tasks"] == ["a", "b", "new", "d"]
    assert marks(tmp_path / "one") == marks(bare.both)
    one, two = (marks(tmp_path / name) for name in ("one", "two"))
    assert two["new"] == one["c"]


def test_models_with_an_ancestor_of_their_own(bare: Pair, tmp_path: Path) -> None:
    """The ancestor is a file of the model; the joined one has it, too."""
    rivals.make_ancestor(bare.first, tmp_path / "known", task="a")
    options = {"ancestor": str(tmp_path / "known"), "new": 0.0, "grey": True}
    for name, classes in (("one", (0, 1)), ("two", (2, 3))):
        learn(arrays(*classes), tmp_path / name, f"task {name}", **options)
    rivals.Model(tmp_path / "one").join(tmp_path / "two", tmp_path / "both")
    shutil.rmtree(tmp_path / "known")
    assert check(tmp_path / "both").whole
    both = marks(tmp_path / "both")
    assert both == {**marks(tmp_path / "one"), **marks(tmp_path / "two")}
