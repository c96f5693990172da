"""Containerfile, as far as it can be checked without an engine: nothing is built here.

It is parsed, what it copies is there, its commands of pip run in a virtual environment (packages
that are installed here are taken as they are), and its entry point starts.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent
PLACE = "/opt/rivals"
KNOWN = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL",
         "ENTRYPOINT", "CMD"}  # fmt: skip


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def last(word: str) -> str:
    return [rest for each, rest in instructions() if each == word][-1]


def test_the_container_file_is_whole() -> None:
    found = instructions()
    assert {word for word, _ in found} <= KNOWN
    assert found[0] == ("FROM", "docker.io/library/python:3.12-slim AS build")
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for source in [each for word, rest in found if word == "COPY" for each in rest.split()[:-1]]:
        if not source.startswith("--from=") and source != PLACE:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored
    assert last("USER") == "rivals"  # not root
    assert last("STOPSIGNAL") == "SIGTERM"
    from test_docs import parsed

    assert parsed(json.loads(last("CMD")))["host"] == "0.0.0.0"
    (extras,) = re.findall(r"\[([\w,]+)\]'", (ROOT / "Containerfile").read_text())
    for extra in extras.split(","):
        assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_lines_about_the_container_parse() -> None:
    from test_docs import parsed

    text = (ROOT / "Containerfile").read_text()
    comments = re.findall(r"^#   podman run .* rivals (\w.*)$", text, re.MULTILINE)
    assert [parsed(shlex.split(line))["mqtt"] for line in comments] == ["broker"]


def test_its_commands_run_in_a_virtual_environment(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: rivals[web]")
    if not sys.platform.startswith("linux"):
        pytest.skip("the commands are for Linux")
    place, source = tmp_path / "rivals", tmp_path / "src"
    source.mkdir()
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            *names, target = rest.split()
            for name in names:
                there = ROOT / name
                if there.is_dir():
                    shutil.copytree(there, source / target)
                else:
                    shutil.copy(there, source / name)
    taken = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0",
             "PIP_DISABLE_PIP_VERSION_CHECK": "1", "TORCH_INDEX": "none"}  # fmt: skip
    environment = {**os.environ, **taken}
    environment.pop("PYTHONPATH", None)
    commands = [rest for word, rest in instructions() if word == "RUN" and PLACE in rest]
    assert len(commands) == 2
    for command in commands:
        made = f"{sys.executable} -m venv --without-pip"  # ours is taken, and our setuptools
        line = command.replace(PLACE, str(place)).replace("python -m venv", made)
        done = subprocess.run(
            ["sh", "-c", line], cwd=source, env=environment, capture_output=True, text=True,
            timeout=180,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (packages,) = (place / "lib").glob("python*/site-packages")
        paths = {sysconfig.get_path("purelib"), *(p for p in sys.path if p.endswith("-packages"))}
        (packages / "installed.pth").write_text("\n".join(sorted(map(str, paths))))
    entry = [word.replace(PLACE, str(place)) for word in json.loads(last("ENTRYPOINT"))]
    words = [word.replace("/models", str(tmp_path)) for word in json.loads(last("CMD"))]
    token = "a-token-of-sixteen-letters"
    server = subprocess.Popen(
        [*entry, *words, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**environment, "RIVALS_TOKEN": token},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        url = httpx.URL(json.loads(server.stdout.readline())["url"])
        assert url.params["token"] == token
        own = url.copy_with(host="127.0.0.1", path="/api/state", query=None)
        told = httpx.get(own, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        assert told.json()["model"] == "model"
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) in (0, 130)
    finally:
        server.kill()
