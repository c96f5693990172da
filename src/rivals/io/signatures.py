"""Signatures: whoever has the private key says that a model, a run, a ticket or an export is good.

    model/signature.json     in the folder of a model, a run, a ticket or a C program
    ticket.onnx.sig          beside an exported file

A signature (Ed25519) covers the checksums of all files that change an answer. Of a model that is
model.json alone, for it holds the checksums of the others. The package `cryptography` is imported
when a signature is made or checked.
"""

from __future__ import annotations

import contextlib
import json
import os
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rivals.errors import RivalsError
from rivals.io.files import write_json
from rivals.io.reading import LINK, UnreadableError, file_digest, is_link, read_bytes, read_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

NAME = "signature.json"
SUFFIX = ".sig"  # of the signature beside a file
FORMAT = 1
MODEL = "model.json"
KEY = 2**14  # bytes of a file with a key
FILES = 10_000  # that a signature covers
NOTES = ("README.md", "exports.json")  # change no answer
Checksums = dict[str, str]  # by the name of the file


class SignatureError(RivalsError):
    """What is there is not signed as it should be."""


def place(path: Path) -> Path:
    """Where the signature of a folder or a file is."""
    return path / NAME if path.is_dir() else path.with_name(path.name + SUFFIX)


def remove(path: Path) -> bool:
    """Take a signature away, for what it covered was changed; whether there was one."""
    with contextlib.suppress(OSError):
        place(path).unlink()
        return True
    return False


def new_key(path: Path) -> Path:
    """Write a new private key to `path`, and its public key beside it, whose path is returned."""
    serialization, ed25519 = _packages()
    public = path.with_name(f"{path.name}.pub")
    if lexists(path) or lexists(public):
        raise RivalsError(f"{path} or {public} is there already; choose another name for the key.")
    key = ed25519.Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    shown = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        for file, data, mode in ((path, secret, 0o600), (public, shown, 0o644)):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(file, flags, mode), "wb") as opened:
                opened.write(data)
    except OSError as error:
        raise RivalsError(
            f"Could not write the key {path} ({error.strerror}); choose another place."
        ) from error
    return public


def sign(path: Path, key: Path) -> Path:
    """Sign what is at `path` with the private key in the file `key`; gives the signature's path."""
    private = _private(key)
    files = checksums(path)
    signed = {
        "format": FORMAT,
        "files": files,
        "key": private.public_key().public_bytes_raw().hex(),
        "signature": private.sign(_statement(files)).hex(),
    }
    write_json(place(path), signed)
    return place(path)


def check(path: Path, key: Path, files: Checksums | None = None) -> None:
    """Refuse what is not signed, as it is, with the private key that belongs to `key`.

    Args:
        path: A folder or a file.
        key: The file of the public key.
        files: The checksums of what was read, where that is known; otherwise it is read here.
    """
    public = _public(key)
    from cryptography.exceptions import InvalidSignature

    if not lexists(place(path)):
        raise SignatureError(
            f"{path} is not signed, but a signature that fits {key} is required; its owner can "
            "make one with `rivals sign`."
        )
    stored = read_json(place(path), "signature")
    found = checksums(path) if files is None else files
    try:
        public.verify(bytes.fromhex(stored["signature"]), _statement(found))
    except (InvalidSignature, LookupError, TypeError, ValueError) as error:
        if stored.get("key") != public.public_bytes_raw().hex():
            why = f"is signed with another key than {key}"
        else:
            why = "was changed after it was signed"
        raise SignatureError(f"{path} {why}, so it is not used.") from error


def checksums(path: Path) -> Checksums:
    """The files whose content a signature of `path` covers, with their checksums."""
    if not path.is_dir():
        card = path.with_name(f"{path.name}.json")  # of formats that cannot hold it
        named = {"*": path, **({"*.json": card} if lexists(card) else {})}
        return {name: file_digest(file, "file") for name, file in named.items()}
    if lexists(path / MODEL):
        return {MODEL: file_digest(path / MODEL, "model")}
    files = list(_files(path))
    if not files:
        raise RivalsError(f"{path} holds no files that could be signed.")
    return {file.relative_to(path).as_posix(): file_digest(file, "file", path) for file in files}


def _files(folder: Path) -> list[Path]:
    """All files below a folder but for hidden ones, in order; links are refused."""
    found: list[Path] = []
    for place_, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*folders, *sorted(names)):
            each = Path(place_) / name
            if is_link(each):
                raise UnreadableError(f"The file {each} cannot be read ({LINK}).")
            if name not in folders and name not in NOTES and each != folder / NAME:
                found += [] if name.startswith(".") else [each]
        if len(found) > FILES:
            raise RivalsError(f"{folder} holds more than {FILES:,} files, so it cannot be signed.")
    return found


def _statement(files: Checksums) -> bytes:
    """What is signed."""
    return json.dumps({"rivals": FORMAT, "files": files}, sort_keys=True).encode()


def _private(path: Path) -> Ed25519PrivateKey:
    serialization, ed25519 = _packages()
    try:
        key = serialization.load_pem_private_key(_key_bytes(path), None)
    except (ValueError, TypeError) as error:
        _no_key(path, "private", error)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        _no_key(path, "private", None)
    return key  # type: ignore[no-any-return]


def _public(path: Path) -> Ed25519PublicKey:
    serialization, ed25519 = _packages()
    try:
        key = serialization.load_pem_public_key(_key_bytes(path))
    except (ValueError, TypeError) as error:
        _no_key(path, "public", error)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        _no_key(path, "public", None)
    return key  # type: ignore[no-any-return]


def _key_bytes(path: Path) -> bytes:
    return read_bytes(Path(os.path.realpath(path)), "key", KEY)  # chosen by the user: may be a link


def _no_key(path: Path, kind: str, error: Exception | None) -> NoReturn:
    raise RivalsError(
        f"{path} holds no {kind} key of Ed25519; make a pair with `rivals sign --new-key FILE`, "
        "sign with FILE and check with FILE.pub."
    ) from error


def _packages() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise RivalsError(
            "Signatures need cryptography, which is not installed; use pip install 'rivals[sign]'."
        ) from error
    return serialization, ed25519
