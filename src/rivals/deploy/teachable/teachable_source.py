"""What a teachable device starts from: an ancestor alone, or a model that has one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rivals.ancestors import ANCESTORS_SIDES
from rivals.ancestors.ancestor import Ancestor
from rivals.ancestors.feature_network import ancestor_graph
from rivals.deploy.teachable.calibrated_body import CalibratedBody, calibrated_body, limited
from rivals.deploy.teachable.taught_state import MOST, TaughtClass, TaughtState, check_name
from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.model import ancestor_file, defaults
from rivals.model.folder import ModelFolder
from rivals.model.folder_kind import folder_kind
from rivals.naming.discriminant import ClassStatistics

PICTURES = 256  # that a folder is calibrated with, at most


@dataclass(frozen=True)
class TeachableSource:
    """A calibrated network, and what the device knows from the start."""

    body: CalibratedBody
    state: TaughtState
    left_out: tuple[str, ...]  # tasks that are no closed form
    calibrated: str  # on what, in words


def of_ancestor(name: str, images: Path | None = None) -> TeachableSource:
    """A device that knows nothing yet."""
    ancestor = _with_network(ancestor_file.find(name), name)
    side = ancestor.side or ANCESTORS_SIDES[0]
    body, words = _calibrated(ancestor, (ancestor.channels, side, side), images)
    return TeachableSource(body, TaughtState(len(body.centre)), (), words)


def of_model(folder: Path, images: Path | None = None) -> TeachableSource:
    """A device that knows the tasks of a model that are in closed form."""
    if folder_kind(folder) != "model":
        raise RivalsError(
            f"{folder} is no model, and only a model with an ancestor can be taught on a device; "
            "name one, or an ancestor with --ancestor tiny."
        )
    model = ModelFolder.open(folder)
    content = model.description
    if content.ancestor is None:
        raise RivalsError(
            f"The model {folder} has no ancestor, so a device cannot learn with it; learn with "
            "--ancestor tiny, or export the ancestor alone with --ancestor tiny."
        )
    if content.sound is not None:
        raise RivalsError(
            f"The model {folder} listens to sounds, and teachable C looks at pictures; name a "
            "model of pictures."
        )
    ancestor = _with_network(model.ancestor, content.ancestor.name)
    body, words = _calibrated(ancestor, content.input_shape, images)
    state, left_out = TaughtState(len(body.centre)), []
    for task in model.tasks:
        record = model.method.known[task.name]
        if model.method.in_closed_form(task.name) and "means" in (record.kept or {}):
            state.classes += known_classes(body, task.name, record.classes, record.kept or {})
        else:
            left_out.append(task.name)
    return TeachableSource(body, state, tuple(left_out), words)


def known_classes(
    body: CalibratedBody, task: str, names: tuple[str, ...], kept: dict[str, Tensor]
) -> list[TaughtClass]:
    """The classes of a task from the statistics that a model keeps of it."""
    check_name(task)
    statistics = ClassStatistics.from_tensors(kept)
    means = limited(((statistics.means - body.centre) @ body.factor.T).round()).numpy()
    found = []
    for name, mean, count in zip(names, means, statistics.counts.tolist(), strict=True):
        check_name(name)
        pictures = min(int(count), MOST)
        found.append(TaughtClass(task, name, mean.astype(np.int64) * pictures, pictures))
    return found


def _with_network(ancestor: ancestor_file.AnyAncestor, name: str) -> Ancestor:
    if not isinstance(ancestor, Ancestor):
        raise RivalsError(
            f"The ancestor '{name}' is a backbone of timm, which is too large for teachable C; "
            "use tiny or small."
        )
    return ancestor


def _calibrated(
    ancestor: Ancestor, shape: tuple[int, int, int], images: Path | None
) -> tuple[CalibratedBody, str]:
    body = calibrated_body(
        ancestor.name, ancestor_graph(ancestor, shape), ancestor.within, shape,
        defaults.preparation(shape[0], ancestor),
        None if images is None else pictures_of(images, shape),
    )  # fmt: skip
    return body, "dead leaves" if images is None else f"pictures of {images}"


def pictures_of(folder: Path, shape: tuple[int, int, int]) -> Tensor:
    """Some pictures of a folder and of its subfolders, whatever they show: (n, *shape) uint8."""
    try:
        found = sorted(
            path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
        )
    except OSError as error:
        raise RivalsError(f"--images {folder} cannot be read ({error.strerror}).") from error
    if not found:
        raise RivalsError(f"--images {folder} holds no pictures; name a folder of some.")
    some = found[:: -(-len(found) // PICTURES)]
    return torch.from_numpy(np.stack([to_pixels(path, shape, 255.0) for path in some]))
