"""Each test has its own data root and cache; those marked `data` share one over the real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REAL = os.environ.get("RIVALS_DATA", "")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decoded-once")


@pytest.fixture(autouse=True)
def own_folders(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.get_closest_marker("data"):
        if not REAL:
            pytest.skip("$RIVALS_DATA is not set; point it at a folder with the official files.")
        monkeypatch.setenv("RIVALS_DATA", REAL)
        monkeypatch.setenv("RIVALS_CACHE", str(request.getfixturevalue("shared_cache")))
    else:
        monkeypatch.setenv("RIVALS_DATA", str(tmp_path / "data"))
        monkeypatch.setenv("RIVALS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder
