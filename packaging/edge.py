"""The wheel `rivals-edge`: what runs without torch, and nothing else.

python packaging/edge.py DIR     builds it into DIR

It has the modules of rivals.edge and those that they import, so none is listed here. Version,
licence and dependencies are those of the whole package. Both have the folder `rivals`: install one.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "rivals"
NEEDED = ("numpy", "pillow", "safetensors", "filelock", "pydantic")
DATA = ("py.typed", "ancestors/*.json", "ancestors/*.safetensors")


def modules() -> list[Path]:
    """The files of rivals.edge, and all that they import, at their top or in a function."""
    pending, found = [SOURCE / "__init__.py", *sorted((SOURCE / "edge").glob("*.py"))], set[Path]()
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        if path != SOURCE / "__init__.py":  # it names all that is public, and imports it when asked
            pending += imported(path)
    return sorted(found)


def imported(path: Path) -> list[Path]:
    """The files of the modules of rivals that one imports, and of the packages that they are in."""
    files = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] != "rivals":
                continue
            place = SOURCE.joinpath(*parts[1:])
            inner = [each / "__init__.py" for each in place.parents if SOURCE in each.parents]
            files += [place.with_suffix(".py"), place / "__init__.py", *inner]
    return [each for each in files if each.is_file()]


def project() -> str:
    """Its pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    whole = tomllib.loads(text)["project"]
    build = tomllib.loads(text)["build-system"]
    known = [each for each in whole["dependencies"] if re.match(r"[\w-]+", each)[0] in NEEDED]  # type: ignore[index]
    runtime = [e for e in whole["optional-dependencies"]["export"] if e.startswith("onnxruntime")]
    data = ", ".join(f'"{each}"' for each in DATA)
    return f"""
[build-system]
requires = {build["requires"]}
build-backend = "{build["build-backend"]}"

[project]
name = "rivals-edge"
version = "{whole["version"]}"
description = "Learn and answer on a device, without torch: the part of rivals that runs there."
readme = "README.md"
requires-python = "{whole["requires-python"]}"
license = "{whole["license"]}"
license-files = ["LICENSE"]
dependencies = {known}

[project.optional-dependencies]
exports = {runtime}

[project.scripts]
rivals-edge = "{whole["scripts"]["rivals-edge"].strip()}"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
rivals = [{data}]
"""


def assemble(place: Path) -> None:
    """The source tree of the wheel."""
    files = modules() + [path for pattern in DATA for path in sorted(SOURCE.glob(pattern))]
    for path in files:
        target = place / "src" / "rivals" / path.relative_to(SOURCE)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    shutil.copyfile(ROOT / "LICENSE", place / "LICENSE")
    shutil.copyfile(ROOT / "docs" / "edge.md", place / "README.md")
    (place / "pyproject.toml").write_text(project())


def main() -> int:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    with tempfile.TemporaryDirectory() as folder:
        assemble(Path(folder))
        words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), folder]
        return subprocess.run([sys.executable, *words], cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
