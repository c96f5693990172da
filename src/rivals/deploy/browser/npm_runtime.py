"""onnxruntime-web, which answers in a browser: from npm once, then from the user's cache.

It is no part of this package. One version is known by its checksums, and no other is taken: pages
are then made of what was tested. Of 140 MB two files are needed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.checksum import sha256
from rivals.io.files import make_folders, write_bytes
from rivals.io.reading import UnreadableError, printable, read_bytes
from rivals.streams.data.find import cache_folder

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
INTEGRITY = (  # of the archive, as npm names it
    "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
)
ARCHIVE_BYTES, FILE_BYTES = 64 * 2**20, 32 * 2**20
SECONDS = 900  # that npm may take


@dataclass(frozen=True)
class RuntimeFile:
    """A file of the package, and what it is called on the page: every server knows .js."""

    source: str
    sha256: str


FILES: Mapping[str, RuntimeFile] = {
    "ort.js": RuntimeFile(
        "dist/ort.wasm.bundle.min.mjs",
        "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    ),
    "ort.wasm": RuntimeFile(
        "dist/ort-wasm-simd-threaded.wasm",
        "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    ),
}


def find_runtime(given: Path | None = None) -> dict[str, bytes]:
    """The files of the runtime by their names on the page.

    Args:
        given: The package, unpacked in a folder or as the archive of `npm pack`; by default it is
            taken from the cache, or else from npm.
    """
    if given is not None:
        return _of_folder(given) if given.is_dir() else _of_archive(given)
    cache = cache_folder() / "npm" / f"{PACKAGE}-{VERSION}"
    try:
        return _checked({name: _read(cache / name) for name in FILES}, cache)
    except RivalsError:  # not there, or not whole: it is fetched again
        found = _of_npm()
    try:
        make_folders(cache)
        for name, data in found.items():
            write_bytes(cache / name, data)
    except (OSError, RivalsError):
        pass  # without a cache it is fetched for every export
    return found


def _of_npm() -> dict[str, bytes]:
    npm, package = shutil.which("npm"), f"{PACKAGE}@{VERSION}"
    if npm is None:
        raise RivalsError(
            f"A page needs {package}, and there is no npm here to fetch it; install npm, or run "
            f"`npm pack {package}` elsewhere and give its file with --runtime FILE."
        )
    with tempfile.TemporaryDirectory(prefix="rivals-") as folder:
        words = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
        try:
            ran = subprocess.run(
                words, cwd=folder, capture_output=True, text=True, errors="replace",
                timeout=SECONDS, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            reason = next(iter(ran.stderr.strip().splitlines()), f"status {ran.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            ran, reason = None, str(error)
        archives = sorted(Path(folder).glob("*.tgz"))
        if ran is None or ran.returncode != 0 or len(archives) != 1:
            raise RivalsError(
                f"npm could not fetch {package} ({printable(reason)}); connect this machine to the "
                f"network, or run `npm pack {package}` elsewhere and give its file with "
                "--runtime FILE."
            )
        return _of_archive(archives[0])


def _of_archive(path: Path) -> dict[str, bytes]:
    """From the archive of `npm pack`, which is opened only if it is the one that is known."""
    data = read_bytes(path, f"archive of {PACKAGE}", ARCHIVE_BYTES)
    found = base64.b64encode(hashlib.sha512(data).digest()).decode()
    if f"sha512-{found}" != INTEGRITY:
        raise _other(path)
    files = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for name, wanted in FILES.items():
            member = archive.extractfile(f"package/{wanted.source}")
            assert member is not None  # the archive is known
            files[name] = member.read()
    return _checked(files, path)


def _of_folder(folder: Path) -> dict[str, bytes]:
    """From the unpacked package, such as node_modules/onnxruntime-web."""
    try:
        found = {name: _read(folder / wanted.source) for name, wanted in FILES.items()}
    except UnreadableError as error:
        raise RivalsError(
            f"--runtime {folder} does not hold {PACKAGE} {VERSION} ({str(error)[:-1]}); give the "
            f"folder or the file that `npm pack {PACKAGE}@{VERSION}` made."
        ) from error
    return _checked(found, folder)


def _read(path: Path) -> bytes:
    return read_bytes(path, f"file of {PACKAGE}", FILE_BYTES)


def _checked(files: dict[str, bytes], place: Path) -> dict[str, bytes]:
    if any(sha256(data) != FILES[name].sha256 for name, data in files.items()):
        raise _other(place)
    return files


def _other(place: Path) -> RivalsError:
    return RivalsError(
        f"{place} is not {PACKAGE} {VERSION}: its checksum differs; give what "
        f"`npm pack {PACKAGE}@{VERSION}` makes."
    )
