"""Files from elsewhere: links, pipes, sizes, depths and aliases are refused in one sentence."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from rivals.errors import RivalsError
from rivals.io.reading import parse_json, parse_yaml, printable, read_bytes, read_json


def test_reads_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert read_bytes(tmp_path / "a", "file", 3) == b"abc"
    assert read_bytes(tmp_path / "a", "file", 3, root=tmp_path) == b"abc"


def test_refuses_more_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcd")
    with pytest.raises(RivalsError, match="4 bytes, at most 3"):
        read_bytes(tmp_path / "a", "file", 3)
    with pytest.raises(RivalsError, match="not a regular file"):
        read_bytes(Path("/dev/zero"), "file", 3)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_refuses_pipes_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RivalsError, match="not a regular file"):
        read_bytes(tmp_path / "pipe", "file", 3)


def test_refuses_links_below_the_root_only(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "inner").mkdir(parents=True)
    (real / "inner" / "a").write_bytes(b"abc")
    (tmp_path / "root").symlink_to(real)  # chosen by the user: followed
    assert read_bytes(tmp_path / "root/inner/a", "file", 3, root=tmp_path / "root") == b"abc"
    (real / "linked").symlink_to(real / "inner")
    (real / "inner" / "link").symlink_to("a")
    for path in (real / "linked" / "a", real / "inner" / "link"):
        with pytest.raises(RivalsError, match="is a link"):
            read_bytes(path, "file", 3, root=real)


@pytest.mark.parametrize(
    "data",
    [b'{"a": NaN}', b'{"a": Infinity}', b"[]", b"{", b"\xff", b'{"a":' + b"[" * 100 + b"]" * 100
     + b"}", b'{"a":' + b"[" * 100_000, b'{"a": [' + b"[]," * 3_000_000 + b"[]]}"],
    ids=["nan", "infinity", "list", "cut", "bytes", "deep", "deeper", "many"],
)  # fmt: skip
def test_json_that_is_refused(data: bytes) -> None:
    with pytest.raises(RivalsError, match="is damaged"):
        parse_json(data, "The file")


def test_yaml_without_aliases(tmp_path: Path) -> None:
    assert parse_yaml(b"a: [1, 2]", "The file") == {"a": [1, 2]}
    for text in (b"a: &x [1]\nb: *x", b"[" * 1000, b"a: [" + b"[]," * 200_000, b"a: !!python/name"):
        with pytest.raises(RivalsError, match="The file"):
            parse_yaml(text, "The file")


def test_missing_files_and_names(tmp_path: Path) -> None:
    with pytest.raises(RivalsError, match=r"The results .*nothing cannot be read \(No such file"):
        read_json(tmp_path / "nothing", "results")
    assert printable("a\x1b[31mb\nc") == "a\ufffd[31mb\ufffdc"
    assert len(printable("x" * 1000)) == 201


def test_memory_is_taken_for_the_file_and_not_for_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"small")
    tracemalloc.start()
    try:
        assert read_bytes(tmp_path / "file", "file", 2**40) == b"small"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
