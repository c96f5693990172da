"""The name of a run's folder, safe on every file system."""

from __future__ import annotations

import hashlib
import os
import re

LONGEST = 60  # characters of one word in a name


def run_name(
    benchmark: str, method: str, preset: str, seed: int, name: str = "", on: str = "test"
) -> str:
    """For example `digits-twta-default-0`; runs on validation images say so."""
    measured = "" if on == "test" else on
    words = [_benchmark(benchmark), *map(_safe, (method, preset, name, measured)), str(seed)]
    return "-".join(filter(None, words))


def _benchmark(name: str) -> str:
    """A path becomes its last part and a checksum: other folders of that name stay apart."""
    if not name.startswith("folder:"):
        return _safe(name)
    path = os.path.normpath(name.removeprefix("folder:"))
    mark = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return f"folder-{_safe(os.path.basename(path)).strip('.') or 'here'}-{mark}"


def _safe(word: str) -> str:
    return re.sub(r"[^\w.-]", ".", word)[:LONGEST]
