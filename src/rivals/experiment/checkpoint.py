"""A checkpoint: a manifest, and a safetensors file for each part of a method's state.

    checkpoint/manifest.json            format, facts, for each part its file and checksum; its own
    checkpoint/<checksum>.safetensors   tensors, named by their content

New files are written first and the manifest last, so a kill at any moment leaves the old checkpoint
or the new one. Nothing in these files can be executed.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from rivals.errors import RivalsError
from rivals.io.files import digest, make_folder, write_bytes, write_json
from rivals.io.reading import check_no_links, read_bytes, read_json
from rivals.io.seal import sealed, unsealed
from rivals.learn.method import Method
from rivals.learn.state import State, StatePart

FORMAT = 1
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)  # of a foreign file
KINDS = {"done": int, "results": dict, "measured": dict, "parts": dict}
MANIFEST_BYTES = 64 * 2**20
PARTS_BYTES = 4 * 2**30  # of all parts together
HEADER_BYTES = 16 * 2**20  # of one part: names and shapes, which take thirty times that in memory


@dataclass
class Checkpoint:
    """What a run has reached: how many tasks are done, results so far, the method's state."""

    done: int
    results: dict[str, Any]
    measured: dict[str, Any]
    state: State = field(default_factory=dict)

    def into(self, method: Method) -> None:
        """Bring `method` to this state; what does not fit it raises one of `DAMAGE`."""
        method.load(self.state)
        for record in method.known.values():
            prepare = record.preprocessing
            numbers = (prepare.scale, *prepare.mean, *prepare.std)
            if not all(isinstance(each, int | float) for each in numbers):
                raise TypeError("preprocessing")
            if not all(isinstance(each, str) for each in record.classes):
                raise TypeError("classes")


class CheckpointFolder:
    """Saves and loads checkpoints in one folder; parts that are fixed are written once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._fixed: dict[str, dict[str, str]] = {}

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest.json"

    def exists(self) -> bool:
        return self.manifest.exists()

    def save(self, checkpoint: Checkpoint) -> None:
        check_no_links(self.folder.parent, self.folder, "checkpoint")
        make_folder(self.folder)
        parts = {name: self._save_part(name, part) for name, part in checkpoint.state.items()}
        manifest = {
            "format": FORMAT,
            "done": checkpoint.done,
            "results": checkpoint.results,
            "measured": checkpoint.measured,
            "parts": parts,
        }
        write_json(self.manifest, sealed(manifest))
        self.sweep(parts)

    def _save_part(self, name: str, part: StatePart) -> dict[str, Any]:
        entry: dict[str, Any] = {"facts": part.facts} if part.facts else {}
        if part.fixed and name in self._fixed:
            return entry | self._fixed[name]
        # Cloned: the format refuses tensors that share memory, and a method need not care.
        tensors = {key: _own(tensor) for key, tensor in part.tensors.items()}
        if not tensors:
            return entry
        for key, tensor in tensors.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise RivalsError(
                    f"The weights are no longer finite ({name}, {key}), so they were not saved; "
                    "lower lr and start anew: the last good state is kept."
                )
        data = safetensors.torch.save(tensors)
        checksum = digest(data)
        file = f"{checksum[:16]}.safetensors"
        if not (self.folder / file).exists():
            write_bytes(self.folder / file, data)
        written = {"file": file, "sha256": checksum}
        if part.fixed:
            self._fixed[name] = written
        return entry | written

    def sweep(self, parts: dict[str, Any] | None = None) -> None:
        """Remove files that no manifest names any more, and what a killed run left half-written."""
        check_no_links(self.folder.parent, self.folder, "checkpoint")
        parts = self._read_manifest()["parts"] if parts is None else parts
        used = {part["file"] for part in parts.values() if "file" in part}
        for path in self.folder.iterdir():
            if path.name not in used and path.suffix in (".safetensors", ".part"):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _read_manifest(self) -> dict[str, Any]:
        root = self.folder.parent
        manifest = read_json(self.manifest, "checkpoint", MANIFEST_BYTES, root)
        version = manifest.get("format")
        if version != FORMAT:
            raise RivalsError(
                f"The checkpoint {self.folder} has format {version}, and this version reads "
                f"{FORMAT}; use the version of rivals that wrote it."
            )
        manifest = unsealed(manifest, f"The checkpoint {self.manifest}", required=True)
        for key, kind in KINDS.items():
            if not isinstance(manifest.get(key), kind):
                raise self._incomplete(key)
        return manifest

    def _incomplete(self, what: object) -> RivalsError:
        return RivalsError(
            f"The checkpoint {self.folder} is damaged: its manifest is not complete ({what})."
        )

    def load(self) -> Checkpoint:
        """The checkpoint; every file of it must have the checksum that is written of it."""
        manifest, room = self._read_manifest(), PARTS_BYTES
        state: State = {}
        try:
            for name, entry in manifest["parts"].items():
                state[name], size = self._load_part(entry, room)
                room -= size
        except (*DAMAGE, safetensors.SafetensorError) as error:
            raise self._incomplete(error) from error
        return Checkpoint(manifest["done"], manifest["results"], manifest["measured"], state)

    def _load_part(self, entry: dict[str, Any], room: int) -> tuple[StatePart, int]:
        """A part, and the bytes of its file."""
        facts = entry.get("facts", {})
        if "file" not in entry:
            return StatePart(facts=facts), 0
        path = self.folder / Path(entry["file"]).name
        data = read_bytes(path, "part of a checkpoint", room, self.folder.parent)
        if digest(data) != entry["sha256"]:
            raise RivalsError(
                f"The checkpoint {self.folder} is damaged: {path.name} has another checksum than "
                "its manifest says; delete the folder to start anew."
            )
        if int.from_bytes(data[:8], "little") > HEADER_BYTES:
            raise RivalsError(
                f"The checkpoint {self.folder} is damaged: {path.name} has a header of more than "
                f"{HEADER_BYTES:,} bytes; delete the folder to start anew."
            )
        # Tensors are copied: what is read from a file may lie unaligned, and then sums can differ.
        tensors = {key: tensor.clone() for key, tensor in safetensors.torch.load(data).items()}
        return StatePart(tensors, facts), len(data)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)
