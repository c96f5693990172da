"""What is installed, and from where: packages with hashes, no version with a known hole."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
LOCKS = (
    "requirements-dev.lock", "requirements-cluster.lock", "requirements-timm.lock",
    "requirements-bridges.lock", "requirements-watch.lock",
)  # fmt: skip
HOLES = {  # the first version without the holes that were known when this was written
    "pillow": "10.3", "starlette": "0.49.1", "h11": "0.16", "jinja2": "3.1.6", "PyYAML": "5.4",
    "cryptography": "44.0.1", "setuptools": "78.1.1", "onnx": "1.17", "torch": "2.8",
}  # fmt: skip
PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)")


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """The packages of a lock: version and hashes."""
    found: dict[str, tuple[str, list[str]]] = {}
    package = ""
    for line in (ROOT / name).read_text().splitlines():
        if match := PACKAGE.match(line):
            package = match[1].lower().replace("_", "-")
            found[package] = match[2], []
        elif line.startswith("    --hash="):
            found[package][1].append(line.strip(" \\"))
        else:
            assert not line.strip() or line.startswith("#"), f"{name}: {line}"
    return found


def requirements() -> list[Requirement]:
    """All dependencies of the package, with those of its extras."""
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 cannot read TOML.")
    import tomllib

    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = content["project"]
    words = [*project["dependencies"], *content["build-system"]["requires"]]
    words += [word for extra in project["optional-dependencies"].values() for word in extra]
    return [Requirement(word) for word in words if not word.startswith("rivals[")]


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes(name: str) -> None:
    found = locked(name)
    assert len(found) > 10
    for package, (_, hashes) in found.items():
        assert hashes, package
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), package


def test_the_environment_is_made_from_the_locks() -> None:
    made, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci" / "run").read_text()
    assert "LOCKED := --require-hashes --no-deps -r" in made
    assert "$(LOCKED) requirements-dev.lock" in made
    assert "--require-hashes --no-deps" in ci
    assert all(f"-o {name}" in made for name in LOCKS)
    assert all(name in ci for name in LOCKS[1:])  # those beside the development environment


def test_timm_fits_the_torch_that_is_locked() -> None:
    """torchvision names the torch that it was built for; another would replace the CPU build."""
    dev, timm = locked("requirements-dev.lock"), locked("requirements-timm.lock")
    assert timm["torch"] == dev["torch"]
    assert timm["torchvision"][0] == "0.28.0"  # for torch 2.13
    bridges = locked("requirements-bridges.lock")
    assert (bridges["torch"], bridges["torchvision"]) == (timm["torch"], timm["torchvision"])
    assert dev["torch"][0].startswith("2.13.")


def test_the_lock_holds_what_the_package_asks_for() -> None:
    found = locked("requirements-dev.lock")
    for each in requirements():
        name = each.name.lower().replace("_", "-")
        if name in found and (each.marker is None or each.marker.evaluate()):
            assert each.specifier.contains(found[name][0], prereleases=True), each


def test_lower_bounds_are_above_known_holes() -> None:
    bounds: dict[str, Version] = {}
    for each in requirements():
        least = [Version(s.version) for s in each.specifier if s.operator in (">=", "==")]
        if least:
            bounds[each.name] = min([*least, *([bounds[each.name]] if each.name in bounds else [])])
    for name, first in HOLES.items():
        assert bounds[name] >= Version(first), f"{name}>={bounds[name]} has known holes"
