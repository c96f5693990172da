"""Projects as one file, whole tasks, moved pictures, undone drops, tasks learned anew: on disk."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rivals.errors import RivalsError
from rivals.model.model import Model
from rivals.web.collection import Collection, Limits, NewPicture
from rivals.web.open_model import OpenModel
from rivals.web.project import check_end, most_bytes, pack, temporary, unpack
from rivals.web.sample import sample_pictures
from rivals.web.undo import LastDrop
from served import shape
from teaching import folder, marks, teach
from toys import contents

MANIFEST = b'{"format": 1, "model": "m"}'


def collected(place: Path, limits: Limits | None = None) -> Collection:
    """A circle and two crosses."""
    found = Collection(place, limits)
    found.add_tasks(
        NewPicture("shapes", kind, shape(kind, number), "it")
        for kind, number in (("circle", 0), ("cross", 0), ("cross", 1))
    )
    return found


def zipped(entries: dict[str, bytes], change: Callable[[zipfile.ZipInfo], Any] = id) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            change(info)
            archive.writestr(info, data)
    return out


def test_a_project_comes_back_as_it_was(tmp_path: Path) -> None:
    one, other = collected(tmp_path / "one"), Collection(tmp_path / "other")
    one.add_tasks(sample_pictures("Ziffern"))
    with temporary(tmp_path) as file:
        pack(one, tmp_path / "parts", file)
        assert unpack(other, tmp_path / "model", file).tasks == ["shapes", "Ziffern"]
        with pytest.raises(RivalsError, match="'shapes' are collected here already"):
            unpack(other, tmp_path / "model", file)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
    assert (
        sorted(one.places()) == sorted(other.places()) == sorted(Collection(other.folder).places())
    )
    assert {name: len(files) for name, files in other.tasks["Ziffern"].items()} == {
        "3": 30, "5": 30, "8": 30,
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_project_brings_its_model_where_there_is_none(tmp_path: Path) -> None:
    one, model = collected(tmp_path / "one" / "pictures"), tmp_path / "model"
    teach(folder(tmp_path / "photos", (0, 1), 12), model)
    with temporary(tmp_path) as file:
        pack(one, model, file)
        here = Collection(tmp_path / "two" / "pictures")
        found = unpack(here, tmp_path / "other", file)
        assert (found.tasks, found.model) == (["shapes"], True)
        assert marks(tmp_path / "other") == marks(model)
        again = unpack(Collection(tmp_path / "three"), tmp_path / "other", file)
        assert not again.model, "a model that is there stays"
    assert marks(tmp_path / "other") == marks(model)
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["pictures"]


def test_a_damaged_model_brings_nothing(tmp_path: Path) -> None:
    one, model = collected(tmp_path / "one" / "pictures"), tmp_path / "model"
    teach(folder(tmp_path / "photos", (0, 1), 12), model)
    with temporary(tmp_path) as file:
        pack(one, model, file)
        entries = dict(read(file))
    packed = bytearray(entries["model.rivals"])
    packed[len(packed) // 2] ^= 1
    here = Collection(tmp_path / "two" / "pictures")
    for bad in (bytes(packed), b"PK", packed[:-9]):
        changed = zipped({**entries, "model.rivals": bytes(bad)})
        with pytest.raises(RivalsError, match=r"model\.rivals"):
            unpack(here, tmp_path / "other", changed)
    assert not (tmp_path / "other").exists()
    assert not here.tasks


def read(file: Any) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


PICTURE = shape("circle", 5)
GOOD = "pictures/new/circle/x.png"


def linked(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


@pytest.mark.parametrize(
    ("entries", "change", "found"),
    [
        ({GOOD: PICTURE}, id, "it has no project.json"),
        ({"project.json": b"{"}, id, "not valid JSON"),
        ({"project.json": b'{"format": 2}'}, id, "by another version"),
        ({"project.json": MANIFEST}, id, "no pictures in it"),
        ({"project.json": MANIFEST, "../x.png": PICTURE}, id, "no picture of a class"),
        ({"project.json": MANIFEST, "/etc/x": PICTURE}, id, "no picture of a class"),
        ({"project.json": MANIFEST, "pictures/a/../x.png": PICTURE}, id, "cannot be named '..'"),
        ({"project.json": MANIFEST, "pictures/../a/x.png": PICTURE}, id, "cannot be named '..'"),
        ({"project.json": MANIFEST, "pictures/a/b/c/x.png": PICTURE}, id, "no picture of a class"),
        ({"project.json": MANIFEST, GOOD: b"x"}, linked, "no regular file"),
        ({"project.json": MANIFEST, GOOD: b"no picture"}, id, "x.png is not a picture"),
        ({"project.json": MANIFEST, GOOD: bytes(11 * 2**20)}, id, "x.png has 11.0 MB, but"),
        ({"project.json": MANIFEST, GOOD: PICTURE, "pictures/new/cross/y.png": PICTURE}, id,
         "y.png is in 'new' twice"),
        ({"project.json": MANIFEST, GOOD: PICTURE, "pictures/shapes/a/y.png": PICTURE}, id,
         "'shapes' are collected here already"),
        ({f"{number}/": b"" for number in range(23)}, id, "23 entries, more than"),
    ],
)  # fmt: skip
def test_projects_of_others_are_checked(
    tmp_path: Path, entries: dict[str, bytes], change: Any, found: str
) -> None:
    collection = collected(tmp_path / "pictures", Limits(pictures=10))
    before = contents(tmp_path)
    with pytest.raises(RivalsError, match=found):
        unpack(collection, tmp_path / "model", zipped(entries, change))
    assert contents(tmp_path) == before
    assert [path.name for path in collection.folder.iterdir()] == ["shapes"]
    assert list(collection.tasks) == ["shapes"]


@pytest.mark.parametrize("limits", [Limits(pictures=4), Limits(bytes=900), Limits(tasks=1)])
def test_a_project_has_the_limits_of_a_collection(tmp_path: Path, limits: Limits) -> None:
    collection = collected(tmp_path, limits)
    entries = {f"pictures/new/cross/{n}.png": shape("cross", n) for n in range(2, 6)}
    with pytest.raises(RivalsError, match="limit"):
        unpack(collection, tmp_path / "model", zipped({"project.json": MANIFEST, **entries}))
    assert list(Collection(tmp_path).tasks) == ["shapes"]


def test_a_table_of_contents_is_not_read_before_its_size(tmp_path: Path) -> None:
    """Damaged, commented, encrypted and lengthened zips; and one whose sizes are not true."""
    collection = Collection(tmp_path)
    good = zipped({"project.json": MANIFEST, GOOD: PICTURE}).getvalue()
    assert unpack(Collection(tmp_path / "good"), tmp_path / "m", io.BytesIO(good)).tasks == ["new"]
    end = len(good) - 22
    wide = good[:end] + b"PK\6\7" + bytes(16) + good[end:]
    many = good[: end + 12] + (2**31).to_bytes(4, "little") + good[end + 16 :]
    for bad in (b"", good[:-1], good + b"x", good[:end], wide, many, b"PK\5\6" + bytes(18)):
        with pytest.raises(RivalsError, match="This is no project of rivals"):
            unpack(collection, tmp_path / "model", io.BytesIO(bad))
    place = good.index(b"PK\1\2")
    place = good.index(b"PK\1\2", place + 4)  # the picture in the table of contents
    for at, value in ((8, 1), (10, 12), (20, 2**31), (24, 5)):  # encrypted, bzip2, wrong sizes
        bad = bytearray(good)
        bad[place + at : place + at + 2] = (value & 0xFFFF).to_bytes(2, "little")
        with pytest.raises(RivalsError):
            unpack(collection, tmp_path / "model", io.BytesIO(bytes(bad)))
    assert collection.tasks == {}
    assert most_bytes(Limits()) < 2**32  # a zip of 32 bits
    check_end(io.BytesIO(good), Limits())


def test_a_picture_moves_to_another_class(tmp_path: Path) -> None:
    collection = collected(tmp_path)
    (circle,) = collection.names("shapes", "circle")
    assert not collection.listing()[0]["edited"]
    collection.move("shapes", "circle", circle, "cross")
    assert collection.names("shapes", "circle") == []
    assert circle in collection.names("shapes", "cross")
    assert sorted(collection.places()) == sorted(Collection(tmp_path).places())
    assert collection.listing()[0]["edited"]
    for words in (
        ("circle", circle, "cross"),
        ("cross", circle, "ring"),
        ("ring", circle, "cross"),
    ):
        with pytest.raises(RivalsError):
            collection.move("shapes", *words)
    (tmp_path / "shapes" / "circle").rmdir()
    (tmp_path / "shapes" / "circle").symlink_to(tmp_path)
    with pytest.raises(RivalsError, match="link"):
        collection.move("shapes", "cross", circle, "circle")


def test_a_task_is_learned_anew(tmp_path: Path, refused: Callable[..., str]) -> None:
    """With other classes, in place of the old one; the others keep every bit."""
    model = tmp_path / "model"
    for name, classes in (("first", (0, 1)), ("second", (2, 3)), ("third", (4, 5))):
        teach(folder(tmp_path / name, classes, 8), model, epochs=1)
    before, history = marks(model), Model(model).opened().description.history
    other = folder(tmp_path / "other", (6, 7, 8), 8)
    assert "leave one of them out" in refused(
        "learn", other, "--model", model, "--name", "second", "--anew", "--again"
    )
    assert "no task 'fourth' to refine" in refused(
        "learn", other, "--model", model, "--name", "fourth", "--anew"
    )
    assert marks(model) == before
    events: list[dict[str, Any]] = []
    learned = Model(model).learn(other, "second", anew=True, epochs=1, listener=events.append)
    assert [(each.name, len(each.classes)) for each in Model(model).tasks] == [
        ("first", 2), ("third", 2), ("second", 3),
    ]  # fmt: skip
    after = marks(model)
    assert {name: after[name] for name in ("first", "third")} == {
        name: before[name] for name in ("first", "third")
    }
    assert after["second"] != before["second"]
    now = Model(model).opened().description.history
    assert history is not None
    assert now is not None
    assert now.lines[: len(history.lines)] == history.lines
    assert [line.split()[0] for line in now.lines[len(history.lines) :]] == ["drop", "learn"]

    # What was mistaken, as the page shows it.
    (told,) = [each for each in events if each["event"] == "mistakes"]
    confusion = told["confusion"]
    held = sum(map(sum, confusion))
    assert held == learned.facts.held
    right = sum(confusion[number][number] for number in range(3))
    assert 100 * right / held == pytest.approx(learned.accuracy)
    assert told["count"] == len(told["mistakes"]) == held - right
    confidences = [each["confidence"] for each in told["mistakes"]]
    assert confidences == sorted(confidences, reverse=True)
    for each in told["mistakes"]:
        assert Path(each["picture"]).is_file()
        assert Path(each["picture"]).parent.name == each["label"] != each["answer"]


def test_a_drop_is_undone(tmp_path: Path) -> None:
    model, beside = tmp_path / "model", tmp_path / "model.collected"
    for name, classes in (("first", (0, 1)), ("second", (2, 3))):
        teach(folder(tmp_path / name, classes, 4), model, epochs=1)
    beside.mkdir()
    collection = collected(beside / "pictures")
    collection.rename("shapes", None, "first")
    before = contents(model), contents(collection.folder)
    last = LastDrop(beside, OpenModel(model), collection)
    with pytest.raises(RivalsError, match="no drop that could be undone"):
        last.undo()
    assert last.drop("first") == ["second"]
    assert [task.name for task in Model(model).tasks] == ["second"]
    assert collection.tasks == {}
    assert last.undo() == "first"
    visible = {name: mark for name, mark in contents(model).items() if not name.startswith(".")}
    assert visible == {n: mark for n, mark in before[0].items() if not n.startswith(".")}
    assert contents(collection.folder) == before[1]
    assert sorted(collection.places()) == sorted(Collection(collection.folder).places())
    assert list(beside.iterdir()) == [collection.folder]

    # Not if the model has changed, or pictures of that name were collected; then nothing happens.
    last.drop("first")
    collection.add_class("first", "circle")
    with pytest.raises(RivalsError, match="'first' are collected here already"):
        last.undo()
    collection.remove("first")
    Model(model).drop("second")
    with pytest.raises(RivalsError, match="has changed since the drop"):
        last.undo()
    assert Model(model).tasks == []
    LastDrop(beside, OpenModel(model), collection)  # a server that starts deletes it for good
    assert list(beside.iterdir()) == [collection.folder]


def test_posteriors_are_told_while_units_compete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the network, in whole percents; after the competition there are winners only."""
    monkeypatch.setattr("rivals.model.events.EVERY", 0.0)
    told: list[dict[str, Any]] = []
    photos = folder(tmp_path / "photos", (0, 1), 12)
    teach(photos, tmp_path / "model", epochs=20, listener=told.append)
    steps = [event for event in told if event["event"] == "step"]
    competing = [event for event in steps if event["competing"]]
    assert 0 < len(competing) < len(steps)
    assert all("posteriors" not in event for event in steps if not event["competing"])
    for event in competing:
        layers = zip(event["posteriors"], event["winners"], event["confidence"], strict=True)
        for percents, winners, confidence in layers:
            assert all(abs(sum(block) - 100) <= len(block) / 2 for block in percents)
            best = [block[unit] for block, unit in zip(percents, winners, strict=True)]
            assert best == [max(block) for block in percents]
            assert abs(sum(best) / len(best) - 100 * confidence) < 1
    assert competing[0]["posteriors"] != competing[-1]["posteriors"]  # they learn
