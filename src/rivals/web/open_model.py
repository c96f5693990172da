"""What the model knows: its tasks, winners and answers, read again when the model changes."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.model.folder import ModelFolder
    from rivals.model.model import Model

COMPARED = 50  # tasks of which each two are compared, at most
LIKELIEST = 5  # classes that are shown
Stamp = tuple[int, int, int]


class OpenModel:
    """The model in `folder`, which is not there before the first task is learned."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._facts: tuple[Stamp | None, dict[str, Any]] = (None, {})
        self._opened: Model | None = None

    def stamp(self) -> Stamp | None:
        """Another one after every change; None if there is no model yet."""
        try:
            facts = (self.folder / "model.json").stat()
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_ino, facts.st_size

    def facts(self) -> dict[str, Any]:
        """The tasks and the room that is left, ready for JSON."""
        with self._lock:
            stamp = self.stamp()
            if stamp is None:
                return {"tasks": [], "room": None, "overlap": None, "damage": None}
            if self._facts[0] != stamp:
                self._facts = (stamp, self._read())
            return self._facts[1]

    def _read(self) -> dict[str, Any]:
        try:
            model = self.open()
            return {
                "tasks": [_shown(task.to_dict()) for task in model.tasks],
                "room": model.room(),
                "overlap": model.overlap() if len(model.tasks) <= COMPARED else None,
                "damage": None,
            }
        except RivalsError as error:  # the page must say so, not fall silent
            return {"tasks": [], "room": None, "overlap": None, "damage": str(error)}

    def has(self, task: str) -> bool:
        return any(each["name"] == task for each in self.facts()["tasks"])

    def open(self) -> ModelFolder:
        """The model as it is now; only then is torch imported."""
        if self.stamp() is None:
            raise RivalsError("Nothing was learned yet; teach a task first.")
        from rivals.model.folder import ModelFolder

        return ModelFolder.open(self.folder)

    def winners(self, task: str) -> dict[str, Any]:
        """The winner of each block, layer by layer, and how many rivals it had."""
        model = self.open()
        return {"winners": model.winners(task), "units": list(model.description.units)}

    def answer(
        self, picture: bytes, name: str, task: str | None, reject: float | None
    ) -> dict[str, Any]:
        """Class, task and confidence of a picture, and how likely the other classes are."""
        with self._lock:
            model = self._model()
            if not model.tasks:
                raise RivalsError("Nothing is known any more; teach a task first.")
            from rivals.io.pictures import to_pixels

            shape = model.opened().description.input_shape
            (answer,) = model.answers(to_pixels(picture, shape, name=name)[None], task, reject)
            top = [(each.label, round(each.confidence, 4)) for each in answer.top(LIKELIEST)]
            return {
                "task": answer.task, "label": answer.label, "confidence": answer.confidence,
                "rejected": answer.rejected, "shares": top,
            }  # fmt: skip

    def _model(self) -> Model:
        if self._opened is None:
            from rivals.model.model import Model

            self.open()
            self._opened = Model(self.folder)
        return self._opened

    def drop(self, task: str) -> list[str]:
        self.open()
        with self._lock:
            return list(self._model().drop(task).heirs)


def _shown(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in ("file", "sha256")}


FORMATS = {
    "ticket": ("Ticket folder", "safetensors and JSON, for rivals itself"),
    "onnx": ("ONNX", "onnxruntime and most other runtimes"),
    "ort": ("ORT", "onnxruntime, its minimal builds too"),
    "onnx-int8": ("ONNX in 8 bits", "a quarter of the size"),
    "c": ("C source", "microcontrollers; any C99 compiler"),
    "litert": ("LiteRT", "phones and boards, once TensorFlow Lite"),
    "executorch": ("ExecuTorch", "phones and boards, with XNNPACK"),
}


def formats() -> list[dict[str, Any]]:
    """What a ticket can be taken away as, and what would have to be installed for it."""
    from rivals.deploy.export_format import formats as known

    shown = [{"name": "ticket", "label": FORMATS["ticket"][0], "for": FORMATS["ticket"][1],
              "install": None}]  # fmt: skip
    for name in sorted(known, key=lambda name: [*FORMATS, name].index(name)):
        label, purpose = FORMATS.get(name, (name, ""))
        missing = any(find_spec(module) is None for module in known[name].modules)
        install = f"pip install 'rivals[{known[name].extra}]'" if missing else None
        shown.append({"name": name, "label": label, "for": purpose, "install": install})
    return shown
