"""Files and folders that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash_points import Tree, read_tree, recorded
from rivals.errors import RivalsError
from rivals.io import files
from rivals.io.files import make_folder, move_folder, remove_folder, write_bytes, write_folder


def disks(folder: Path) -> dict[str, Tree]:
    """What `recorded` says the disks hold after an unsynced rename."""
    with recorded(folder) as recorder:
        (folder / "new").write_bytes(b"12345678")
        (folder / "new").replace(folder / "file")
        return recorder.disks()


def test_the_recorder_notices_what_was_not_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    found = disks(tmp_path)
    assert found["killed"] == {"file": b"12345678"}
    assert found["lost"] == {"file": b"old"}
    assert found["torn"] == {"file": b"1234"}
    with recorded(tmp_path) as recorder:
        write_bytes(tmp_path / "file", b"newest")
        assert set(map(str, recorder.disks().values())) == {str({"file": b"newest"})}
    kinds = [point.kind for point in recorder.points if point.kind != "unlink"]
    assert kinds == ["open", "write", "sync", "rename", "sync"]


def test_new_folders_survive_a_power_cut(tmp_path: Path) -> None:
    with recorded(tmp_path) as recorder:
        make_folder(tmp_path / "a" / "b")
        assert recorder.disks()["lost"] == {"a": None, "a/b": None}
        (tmp_path / "a" / "c").mkdir()
        assert recorder.disks()["lost"] == {"a": None, "a/b": None}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_folder_takes_the_place_of_another(
    at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:  # as where the system cannot exchange names
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    for name in ("made", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"")
    move_folder(tmp_path / "made", tmp_path / "place")
    assert set(read_tree(tmp_path)) == {"made", "made/place", "place", "place/made"}


def test_files_that_belong_together(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_folder(folder, {"a": b"1", "b": b"2"})
    (folder / "beside").write_bytes(b"of the former")
    write_folder(folder, {"a": b"1", "b": b"2"}, old=("beside",))
    assert (folder / "beside").exists(), "nothing was new, so nothing was written"
    write_folder(folder, {"a": b"3", "b": b"2"}, old=("beside",))
    assert read_tree(tmp_path) == {"folder": None, "folder/a": b"3", "folder/b": b"2"}
    (folder / "somebody's").write_bytes(b"x")
    write_folder(folder, {"a": b"4"})
    assert (folder / "somebody's").read_bytes() == b"x"
    assert (folder / "a").read_bytes() == b"4"
    with pytest.raises(RivalsError, match=r"Could not write .*a/inside \(File exists\)"):
        write_folder(folder / "a" / "inside", {"a": b""})


def test_a_folder_is_removed_whole(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_folder(tmp_path / "folder")
        (tmp_path / "folder" / name).write_bytes(b"x")
    with recorded(tmp_path) as recorder:
        remove_folder(tmp_path / "folder")
        remove_folder(tmp_path / "folder")  # nothing is there, and nothing happens
    assert read_tree(tmp_path) == {}
    whole = {"folder/a", "folder/b"}
    for point in recorder.points:
        for tree in point.disks.values():
            assert whole & set(tree) in (whole, set())
