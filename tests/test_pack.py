"""`rivals pack` and `rivals unpack`: one file that carries a model, hostile until it is checked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import rivals
from crash_points import crashes, read_tree, recorded, write_tree
from rivals.errors import RivalsError
from rivals.io import signatures
from rivals.model import packing
from rivals.model.checking import check
from rivals.model.dropping import drop
from rivals.model.folder import ModelFolder
from rivals.model.manifest import checksum
from teaching import folder, marks, teach
from toys import contents

Refused = Callable[..., str]
Accepted = Callable[..., str]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tasks, one of them with edges that a dropped task had. Only to be read."""
    place = tmp_path_factory.mktemp("packed")
    for name, classes in (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5))):
        teach(folder(place / name, classes, 6), place / "model", epochs=1)
    drop(place / "model", "a")
    return place / "model"


@pytest.fixture(scope="module")
def packed(taught: Path) -> Path:
    """That model as one file. Only to be read."""
    rivals.Model(taught).pack(taught.parent / "model.rivals")
    return taught.parent / "model.rivals"


def test_a_model_there_and_back(
    taught: Path, packed: Path, tmp_path: Path, accepted: Accepted
) -> None:
    moved = ModelFolder.open(taught).description.moved
    model = rivals.Model.unpack(packed, tmp_path / "here")
    assert marks(tmp_path / "here") == marks(taught)
    assert [task.name for task in model.tasks] == ["b", "c"]
    assert moved is None or (tmp_path / "here" / "tasks" / moved.file).exists()
    assert (tmp_path / "here" / "model.json").read_bytes() == (taught / "model.json").read_bytes()
    again = model.pack(tmp_path / "again.rivals")
    assert again.path.read_bytes() == packed.read_bytes()  # the same model, the same file
    assert again.bytes == packed.stat().st_size
    said = json.loads(accepted("pack", taught, tmp_path / "third.rivals", "--json"))
    assert (said["sha256"], said["tasks"]) == (again.sha256, ["b", "c"])
    assert "2 tasks" in accepted("unpack", packed, "--model", tmp_path / "there")
    said = json.loads(accepted("unpack", packed, "--model", tmp_path / "next", "--json"))
    assert said["tasks"] == ["b", "c"]


def test_every_program_that_knows_zip_files_opens_it(
    taught: Path, packed: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        archive.extractall(tmp_path / "by hand")
    assert names[0] == "model.json"
    assert names[1:] == sorted(f"tasks/{file}" for file in os.listdir(taught / "tasks"))
    assert marks(tmp_path / "by hand") == marks(taught)


def test_only_the_model_is_in_the_file(taught: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(taught, copy)
    (copy / "collected").mkdir()
    (copy / "collected" / "face.jpg").write_bytes(b"a picture of somebody")
    rivals.Model(copy).pack(tmp_path / "one.rivals")
    rivals.Model(taught).pack(tmp_path / "other.rivals")
    assert (tmp_path / "one.rivals").read_bytes() == (tmp_path / "other.rivals").read_bytes()


def test_what_is_refused_in_words(
    taught: Path, packed: Path, tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_bytes(b"hello")
    (tmp_path / "linked").symlink_to(tmp_path / "nowhere")
    before = contents(tmp_path)
    for place in ("there", "file", "linked"):
        assert "is there already" in refused("unpack", packed, "--model", tmp_path / place)
        assert "is there already" in refused("pack", taught, tmp_path / place)
    assert "no folder" in refused("pack", taught, tmp_path / "none" / "x.rivals")
    assert "holds no model" in refused("pack", tmp_path / "there", tmp_path / "x.rivals")
    nowhere = tmp_path / "nowhere.rivals"
    assert "cannot be read" in refused("unpack", nowhere, "--model", tmp_path / "x")
    assert "cannot be read" in refused("unpack", taught, "--model", tmp_path / "x")
    assert "`rivals unpack" in refused("drop", "b", "--model", packed)
    assert "`rivals unpack` opens packed models" in refused("info", packed)
    assert contents(tmp_path) == before


def test_a_damaged_model_is_not_packed(taught: Path, tmp_path: Path, refused: Refused) -> None:
    shutil.copytree(taught, tmp_path / "model")
    file = next((tmp_path / "model" / "tasks").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert "is damaged" in refused("pack", tmp_path / "model", tmp_path / "x.rivals")
    assert not (tmp_path / "x.rivals").exists()


# Hostile files ------------------------------------------------------------------------------------


def zipped(path: Path, entries: list[tuple[str, bytes]], **options: int) -> Path:
    """A zip file as other programs write it."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, options.get("compression"))
    return path


def entries_of(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def written(path: Path, entries: list[tuple[str, bytes]]) -> Path:
    """A file exactly as `rivals pack` writes it, with these entries."""
    listed = [packing.PackedFile(name, len(data), zlib.crc32(data)) for name, data in entries]
    pairs = zip(listed, entries, strict=True)
    whole = b"".join(each.before() + data for each, (_, data) in pairs)
    path.write_bytes(whole + packing.ending(listed))
    return path


def changed(entries: list[tuple[str, bytes]], number: int, name: str = "", data: bytes = b"") -> (
    list[tuple[str, bytes]]
):  # fmt: skip
    old = entries[number]
    return [*entries[:number], (name or old[0], data or old[1]), *entries[number + 1 :]]


ATTACKS: dict[str, Callable[[Path, list[tuple[str, bytes]]], Path]] = {
    "path above": lambda p, e: written(p, changed(e, 1, name="../" + e[1][0][3:])),
    "absolute path": lambda p, e: written(p, changed(e, 1, name="/" + e[1][0][1:])),
    "another name": lambda p, e: written(p, changed(e, 1, name="tasks/" + "0" * 16 + e[1][0][22:])),
    "duplicate name": lambda p, e: written(p, [e[0], e[1], e[1], *e[2:]]),
    "model twice": lambda p, e: written(p, [e[0], e[0], *e[1:]]),
    "too many entries": lambda p, e: written(p, [*e, *[("x", b"")] * 5000]),
    "another file": lambda p, e: written(p, [*e, ("run.py", b"print('hello')")]),
    "missing file": lambda p, e: written(p, e[:-1]),
    "other order": lambda p, e: written(p, [e[0], *e[:0:-1]]),
    "other content": lambda p, e: written(p, changed(e, 1, data=bytes(len(e[1][1])))),
    "no model": lambda p, e: written(p, e[1:]),
    "bomb": lambda p, e: zipped(p, [(e[0][0], b" " * 10**7), *e[1:]], compression=8),
    "compressed": lambda p, e: zipped(p, e, compression=8),
    "by another program": zipped,
    "text": lambda p, e: p.write_bytes(b"hello") and p,
    "nothing": lambda p, e: p.touch() or p,
    "huge header": lambda p, e: p.write_bytes(
        packing.PackedFile("model.json", 2**32 - 1, 0).before()
    ) and p,
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_file_is_refused(
    attack: str, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    file = ATTACKS[attack](tmp_path / "in" / "x.rivals", entries_of(packed))
    assert file.read_bytes() != packed.read_bytes()
    before = contents(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(RivalsError, match=r"^The packed model .*x.rivals is damaged, or") as error:
        rivals.Model.unpack(file, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not check(file).whole
    assert contents(tmp_path) == before


def test_every_byte_counts(packed: Path, tmp_path: Path) -> None:
    """One bit flipped anywhere, in headers and in the list at the end, too; or cut anywhere."""
    data = packed.read_bytes()
    end = len(data) - len(
        packing.ending([packing.PackedFile(n, len(d), 0) for n, d in entries_of(packed)])
    )
    places = [*range(0, 40, 3), *range(end, len(data), 9), *range(40, end, len(data) // 8)]
    file = tmp_path / "x.rivals"
    for place in places:
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(RivalsError), packing.unpacked(file) as found:
            packing.accept(found)
    for length in (0, 1, 29, 30, end - 1, end, len(data) - 1):
        file.write_bytes(data[:length])
        with pytest.raises(RivalsError):
            rivals.Model.unpack(file, tmp_path / "out")
    file.write_bytes(data + b"!")
    with pytest.raises(RivalsError, match="bytes, but its"):
        rivals.Model.unpack(file, tmp_path / "out")
    assert os.listdir(tmp_path) == ["x.rivals"]


def test_a_model_that_fits_itself_and_no_network(packed: Path, tmp_path: Path) -> None:
    """All checksums right, and a task's file that is none: the reader of models refuses it."""
    entries = entries_of(packed)
    described = json.loads(entries[0][1])
    bad = struct.pack("<Q", 2) + b"{}"
    mark = hashlib.sha256(bad).hexdigest()
    old = described["tasks"][0]["file"]
    described["tasks"][0] |= {"file": f"{mark[:16]}.safetensors", "sha256": mark, "bytes": 10}
    described["sha256"] = checksum(described)
    rest = [each for each in entries[1:] if not each[0].endswith(old)]
    rest = sorted([*rest, (f"tasks/{mark[:16]}.safetensors", bad)])
    raw = (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()
    file = written(tmp_path / "x.rivals", [("model.json", raw), *rest])
    with pytest.raises(RivalsError, match=r"The model .*x.rivals is damaged: the file of 'b'"):
        rivals.Model.unpack(file, tmp_path / "out")
    assert os.listdir(tmp_path) == ["x.rivals"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.rivals")
    with pytest.raises(RivalsError, match="cannot be read"):
        rivals.Model.unpack(tmp_path / "pipe.rivals", tmp_path / "out")


# Checked, signed, interrupted ---------------------------------------------------------------------


def test_check_looks_into_the_file(
    taught: Path, packed: Path, tmp_path: Path, accepted: Accepted
) -> None:
    report = check(packed)
    assert (report.kind, report.whole) == ("packed model", True)
    assert {"packed file", "model.json", "ticket of 'b'"} <= {each.part for each in report.parts}
    assert "packed model" in accepted("check", packed)
    history = ModelFolder.open(taught).description.history
    assert history is not None
    assert check(packed, since=history.newest).whole
    assert not check(packed, since="0" * 64).whole
    renamed = shutil.copy(packed, tmp_path / "model.zip")  # known by its content
    assert check(Path(renamed)).kind == "packed model"


def test_a_signature_travels_along(taught: Path, tmp_path: Path, refused: Refused) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed: rivals[sign]")
    shutil.copytree(taught, tmp_path / "model")
    key, other = tmp_path / "my.key", tmp_path / "other.key"
    public, foreign = signatures.new_key(key), signatures.new_key(other)
    unsigned = rivals.Model(taught).pack(tmp_path / "unsigned.rivals").path
    signatures.sign(tmp_path / "model", key)
    signed = rivals.Model(tmp_path / "model").pack(tmp_path / "signed.rivals").path
    model = rivals.Model.unpack(signed, tmp_path / "here", require_signature=public)
    assert len(model.tasks) == 2
    assert check(signed, key=public).whole
    assert not check(signed, key=foreign).whole
    assert any(each.part == "signature" for each in check(signed).parts)
    words = ("--model", tmp_path / "x", "--trust")
    assert "another key" in refused("unpack", signed, *words, foreign)
    assert "is not signed" in refused("unpack", unsigned, *words, public)
    signatures.sign(unsigned, key)  # the file itself, as an export
    assert check(unsigned, key=public).whole
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc/self/fd")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib kept its own functions of os")
def test_a_kill_leaves_nothing_or_all(taught: Path, packed: Path, tmp_path: Path) -> None:
    """At every moment, with and without power; only hidden parts may be left, as of all writers."""
    whole = contents(rivals.Model.unpack(packed, tmp_path / "whole").path)
    place = tmp_path / "place"
    place.mkdir()
    with recorded(place) as recorder:
        rivals.Model.unpack(packed, place / "model")
        rivals.Model(taught).pack(place / "x.rivals")
    count = 0
    for number, crash in enumerate(crashes(recorder.points)):
        disk = write_tree(crash.tree, tmp_path / f"disk{number}", ended=2**22 + 1)
        visible = {name for name in os.listdir(disk) if not name.startswith(".")}
        assert visible <= {"model", "x.rivals"}
        if "model" in visible:
            assert contents(disk / "model") == whole
        if "x.rivals" in visible:
            assert (disk / "x.rivals").read_bytes() == packed.read_bytes()
        shutil.rmtree(disk)
        count += 1
    assert count > 20
    assert set(read_tree(place)) >= {"model/model.json", "x.rivals"}


def test_a_full_disk_in_one_sentence(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    assert "only 1,000 are free" in refused("unpack", packed, "--model", tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_unpacking_needs_little_memory_for_a_stated_gigabyte(tmp_path: Path) -> None:
    """A header that promises four gigabytes is refused before a byte of them is asked for."""
    file = tmp_path / "x.rivals"
    with file.open("wb") as opened:
        opened.write(packing.PackedFile("model.json", 2**32 - 1, 0).before())
        opened.truncate(2**32 - 1)  # sparse
    tracemalloc.start()
    with pytest.raises(RivalsError, match="too large"):
        rivals.Model.unpack(file, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22
