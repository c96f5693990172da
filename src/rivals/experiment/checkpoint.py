"""A checkpoint: a manifest, and a safetensors file for each part of a method's state.

    checkpoint/manifest.json            format, facts, for each part its file and checksum; its own
    checkpoint/<checksum>.safetensors   tensors, named by their content

New files are written first and the manifest last, so a kill at any moment leaves the old checkpoint
or the new one. Nothing in these files can be executed.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from rivals.errors import RivalsError
from rivals.io.files import digest, make_folder, read_json, write_bytes, write_json
from rivals.learn.state import State, StatePart

FORMAT = 1


@dataclass
class Checkpoint:
    """What a run has reached: how many tasks are done, results so far, the method's state."""

    done: int
    results: dict[str, Any]
    measured: dict[str, Any]
    state: State = field(default_factory=dict)


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
        make_folder(self.folder)
        parts = {name: self._save_part(name, part) for name, part in checkpoint.state.items()}
        manifest = {
            "format": FORMAT,
            "done": checkpoint.done,
            "results": checkpoint.results,
            "measured": checkpoint.measured,
            "parts": parts,
        }
        write_json(self.manifest, {**manifest, "sha256": _checksum(manifest)})
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
        parts = read_json(self.manifest, "checkpoint")["parts"] if parts is None else parts
        used = {part["file"] for part in parts.values() if "file" in part}
        for path in self.folder.iterdir():
            if path.name not in used and path.suffix in (".safetensors", ".part"):
                with contextlib.suppress(OSError):
                    path.unlink()

    def load(self) -> Checkpoint:
        manifest = read_json(self.manifest, "checkpoint")
        version = manifest.get("format")
        if version != FORMAT:
            raise RivalsError(
                f"The checkpoint {self.folder} has format {version}, and this version reads "
                f"{FORMAT}; use the version of rivals that wrote it."
            )
        if manifest.pop("sha256", None) != _checksum(manifest):
            raise RivalsError(
                f"The checkpoint {self.folder} is damaged: manifest.json has another checksum than "
                "it says; delete the folder to start anew."
            )
        try:
            state = {name: self._load_part(name, e) for name, e in manifest["parts"].items()}
            return Checkpoint(manifest["done"], manifest["results"], manifest["measured"], state)
        except (KeyError, TypeError, AttributeError, safetensors.SafetensorError) as error:
            raise RivalsError(
                f"The checkpoint {self.folder} is damaged: its manifest is not complete ({error})."
            ) from error

    def _load_part(self, name: str, entry: dict[str, Any]) -> StatePart:
        facts = entry.get("facts", {})
        if "file" not in entry:
            return StatePart(facts=facts)
        path = self.folder / Path(entry["file"]).name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise RivalsError(
                f"The checkpoint {self.folder} is damaged: {path.name} cannot be read "
                f"({error.strerror}); delete the folder to start anew."
            ) from error
        if digest(data) != entry["sha256"]:
            raise RivalsError(
                f"The checkpoint {self.folder} is damaged: {path.name} has another checksum than "
                "its manifest says; delete the folder to start anew."
            )
        # Tensors are copied: what is read from a file may lie unaligned, and then sums can differ.
        return StatePart({key: t.clone() for key, t in safetensors.torch.load(data).items()}, facts)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _checksum(manifest: dict[str, Any]) -> str:
    """Of everything in a manifest but its checksum; the same before writing and after reading."""
    return digest(json.dumps(manifest).encode())
