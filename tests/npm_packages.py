"""Packages of npm that tests use: fetched once, into the cache of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def npm_package(name: str, version: str) -> Path:
    """The folder of a package; skips where npm is missing or cannot fetch it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rivals-tests"
    place = cache / f"{name}-{version}"
    found = place / "node_modules" / name
    if found.is_dir():
        return found
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed; apt-get install npm.")
    place.mkdir(parents=True, exist_ok=True)
    line = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place)]
    ran = subprocess.run([*line, f"{name}@{version}"], capture_output=True, text=True, timeout=120)
    if ran.returncode != 0:
        pytest.skip(f"npm could not fetch {name} {version}.")
    return found
