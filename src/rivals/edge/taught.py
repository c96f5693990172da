"""A model folder without torch: learn, predict, test and drop with numpy and pillow alone.

    model = EdgeModel("parts")
    model.learn("photos/screws")
    model.predict("new.jpg").label
    model.drop("screws")

It is the folder that the full package reads and writes: the same description, files, history and
locks. Learning is what the full package does with few photos: a head in closed form on the
ancestor's features, or on the edges of the picture where these are better. Nothing is trained.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.ancestors.shipped_file import ANCESTORS_SIDES, DEFAULT, fitting_side
from rivals.answer import Answer
from rivals.edge.frozen_ancestor import shipped_ancestor
from rivals.edge.frozen_body import NETWORK
from rivals.edge.known_tasks import CLOSED_FORM, KnownTasks
from rivals.edge.lesson import LearnedTask, Lesson, read_pictures
from rivals.edge.model_changes import ModelChange
from rivals.errors import RivalsError, unknown
from rivals.io.pictures import to_pixels
from rivals.io.process_memory import peak_memory
from rivals.model import limits, manifest
from rivals.model.folder_writing import write_lock
from rivals.model.lesson_checks import check_apart, check_known, folder_name, limits_in_words
from rivals.model.manifest import AncestorName, Description, TaskFacts
from rivals.naming.class_sums import Array, log_softmax, scores_of
from rivals.naming.frame_filter import ranked
from rivals.streams import picture_source
from rivals.streams.picture_source import LeftOut, LoadedPictures, PictureSource, Reads

BATCH = 64  # pictures that are answered at once
PLAIN = 2.0  # standard deviation of the pixels of a picture that shows nothing, of 255
SIDES = (16, 256)  # pixels that a model may look at: less leaves the network nothing


@dataclass(frozen=True)
class EdgeLesson:
    """What came of learning a task without torch."""

    facts: TaskFacts
    learner: str  # closed form, nearest mean or edges
    left_out: list[LeftOut]
    repeated: int  # pictures that were there twice in one class
    peak_memory: int  # bytes of this process
    before: float | None = None  # accuracy on the new pictures before they were added
    kept: bool = True  # False: adding them made it worse, so the model was left as it was
    unsigned: bool = False  # whether the model was signed, which it is no longer

    def to_dict(self) -> dict[str, Any]:
        rest = {name: value for name, value in vars(self).items() if name != "facts"}
        left_out = [asdict(each) for each in self.left_out]
        return {**self.facts.to_dict(), **rest, "left_out": left_out}


@dataclass(frozen=True)
class EdgeDrop:
    """What was taken out without torch."""

    task: str
    heirs: list[str]  # tasks that inherited from it
    freed: int  # bytes on disk
    unsigned: bool = False


class EdgeModel:
    """A model in a folder, made if it is not there; it is read anew when it was written."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._known: KnownTasks | None = None

    @property
    def tasks(self) -> list[TaskFacts]:
        """What is said of every task; nothing where there is no model yet."""
        return list(self.description().tasks) if manifest.exists(self.path) else []

    def description(self) -> Description:
        return manifest.read(self.path)

    def known(self) -> KnownTasks:
        """All that answers need, as the folder holds it now."""
        while True:
            now = self.description()
            if self._known is None or self._known.content != now:
                self._known = KnownTasks(self.path, now)
            try:
                self._known.readers  # noqa: B018 - reads the files of all tasks
                return self._known
            except RivalsError:
                if self.description() == now:
                    raise  # else somebody wrote meanwhile, and took files away

    # Answers -----------------------------------------------------------------------------------

    def predict(self, pictures: Any, task: str | None = None, reject: float | None = None) -> Any:
        """What is on a picture, as an `Answer`; of a list of pictures, a list of them.

        Args:
            pictures: A path, bytes, a PIL image or an array; or a list of them.
            task: The task, where it is known; otherwise the model names one.
            reject: Answer `rejected` to pictures that look less familiar than all but this share
                of the held-out ones.
        """
        some = pictures if isinstance(pictures, list) else [pictures]
        known, found = self.known(), list[Answer]()
        shape, sound = known.content.input_shape, known.content.sound
        for at in range(0, len(some), BATCH):
            read = [to_pixels(each, shape, sound=sound) for each in some[at : at + BATCH]]
            found += self.answers(np.stack(read), task, reject)
        return found if isinstance(pictures, list) else found[0]

    def check(self, task: str | None = None, reject: float | None = None) -> None:
        """Refuse what cannot be asked of this model."""
        known = self.known()
        if task is not None or not known.readers:
            find_task(self.path, known.content, task or "")
        if reject is not None and not 0 <= reject < 1:
            raise RivalsError(
                f"The share to reject is {reject}, but is at least 0 and below 1; 0.05 refuses "
                "about 5 % of the pictures that are known."
            )

    def answers(
        self, images: NDArray[np.uint8], task: str | None = None, reject: float | None = None
    ) -> list[Answer]:
        """Answers for pixels (n, channels, height, width) of the model's own size."""
        self.check(task, reject)
        known = self.known()
        asked = known.readers
        if task is not None:
            name = find_task(self.path, known.content, task).name
            asked = [each for each in asked if each.task.name == name]
        inputs = known.inputs(images)
        features = [each.features(inputs) for each in asked]
        scores = [scores_of(f, each.head) for f, each in zip(features, asked, strict=True)]
        found = np.concatenate([np.exp(log_softmax(each)) for each in scores], 1)
        which = np.full(len(images), known.readers.index(asked[0]))
        if len(asked) > 1:
            found = known.naming.probabilities(inputs.features, found)
            which = known.naming.task[found.argmax(1)]
        rejected = np.zeros(len(images), bool)
        if reject is not None:
            share = known.naming.familiarity(inputs.features, which)
            rejected = shows_nothing(images) | (share < reject)
        classes = tuple((each.task.name, each.classes) for each in asked)
        return [
            Answer(ranked(classes, row), refused)
            for row, refused in zip(found.astype(np.float64), rejected.tolist(), strict=True)
        ]

    def test(self, folder: str | PathLike[str], task: str | None = None) -> dict[str, Any]:
        """Accuracy on a folder of pictures that were not learned, in percent: of all, by class."""
        known = self.known()
        source = picture_source.find(Path(folder), fewest=1)
        source = source.read_as(known.content.sound, f"the model {self.path}")
        asked = known.content.tasks
        if task is not None or not asked:
            asked = (find_task(self.path, known.content, task or ""),)
        labels = [label for each in asked for label in each.classes]
        for label in source.classes:
            if label not in labels:
                raise RivalsError(
                    f"The class '{label}' of {folder} is not known to the model {self.path}; it "
                    f"knows {', '.join(labels[:10])}."
                )
        found = picture_source.read(source, known.content.input_shape, repeats=True, fewest=1)
        parts = range(0, len(found.images), BATCH)
        answers = [a for at in parts for a in self.answers(found.images[at : at + BATCH], task)]
        truth = [found.classes[label] for label in found.labels.tolist()]
        right = np.array([a.label == name for a, name in zip(answers, truth, strict=True)])
        return {
            "images": len(truth),
            "accuracy": 100 * float(right.mean()),
            "classes": {
                name: 100 * float(right[found.labels == number].mean())
                for number, name in enumerate(found.classes)
            },
            "left_out": [asdict(each) for each in found.left_out],
        }

    # Changes -----------------------------------------------------------------------------------

    def learn(
        self, folder: str | PathLike[str], name: str | None = None, *, again: bool = False,
        anew: bool = False, strict: bool = False, ancestor: str | None = None,
        size: int | None = None, progress: Reads | None = None,
    ) -> EdgeLesson:  # fmt: skip
        """Learn the pictures in a folder as a new task; what is known already keeps every bit.

        Args:
            folder: It has a subfolder for each class.
            name: The name of the task; by default that of the folder.
            again: Add the pictures to a task that is known.
            anew: Replace a task that is known.
            strict: Refuse a folder with files that cannot be learned from.
            ancestor: What a new model starts from: small (the default) or tiny.
            size: Pixels a side that a new model looks at.
            progress: Called with how many pictures were read, and of how many.
        """
        started, where = time.monotonic(), Path(folder)
        task = picture_source.named(name or folder_name(where), "task")
        if again and anew:
            raise RivalsError(
                "--again adds pictures to a task and --anew replaces it; leave one of them out."
            )
        check_apart(where, self.path)
        with limits_in_words(), write_lock(self.path) as lock:
            there = manifest.exists(self.path)
            check_known([each.name for each in self.tasks], task, again or anew)
            if there:
                check_same(self.description(), ancestor, size)
            source = picture_source.find(where)
            content = self.description() if there else new_description(source, ancestor, size)
            known = KnownTasks(self.path, content)
            source = source.read_as(content.sound, f"the model {self.path}")
            old = content.task(task)
            stored = known.read(old) if old and again else None
            if stored and stored.kind != CLOSED_FORM:
                raise RivalsError(
                    f"The task '{task}' was not learned in closed form, and adding pictures to it "
                    "is training; use `rivals learn --again`, or replace it with --anew."
                )
            change = ModelChange.none(known)
            change.history  # noqa: B018 - a model without one is refused before pictures are read
            pictures = read_pictures(known, source, task, strict, progress)
            lesson = Lesson(known, task, pictures, stored).learn()
            seconds = lesson.facts.seconds + round(time.monotonic() - started, 2)
            facts = replace(lesson.facts, seconds=seconds)
            if lesson.worse:
                return result(lesson, old or facts, pictures, False)
            if old and not again:
                change = change.without(old)
            place = content.tasks.index(old) if old and again else None
            change = change.with_task(facts, lesson.arrays, place)
            unsigned = change.write(lock, dropping=False)
            made = change.content.task(task)
            return result(lesson, made or facts, pictures, unsigned)

    def drop(self, task: str) -> EdgeDrop:
        """Take a task out, exactly: the other tasks keep every bit."""
        self.description()  # before a folder is made for a model that is not there
        with write_lock(self.path) as lock:
            known = KnownTasks(self.path, self.description())
            gone = find_task(self.path, known.content, task)
            change = ModelChange.none(known).without(gone)
            unsigned = change.write(lock, dropping=True)
            heirs = [e.name for e in known.content.tasks if gone.name in e.inherited_from]
            freed = known.content.total_bytes() - change.content.total_bytes()
            return EdgeDrop(gone.name, heirs, freed, unsigned)


def result(
    lesson: LearnedTask, facts: TaskFacts, pictures: LoadedPictures, unsigned: bool
) -> EdgeLesson:
    return EdgeLesson(
        facts, lesson.learner, pictures.left_out, pictures.repeated, peak_memory(), lesson.before,
        not lesson.worse, unsigned,
    )  # fmt: skip


def shows_nothing(images: Array) -> Array:
    """Which raw images (n, channels, height, width) are of one colour: (n,)."""
    flat = images.reshape(*images.shape[:2], -1).astype(np.float32)
    found: Array = flat.std(2, ddof=1).max(1) < PLAIN
    return found


def find_task(path: Path, content: Description, name: str) -> TaskFacts:
    """What is said of a task; another name is refused."""
    found = content.task(unicodedata.normalize("NFC", name))
    if found is None:
        if not content.tasks:
            raise RivalsError(f"The model {path} has no tasks; learn one first.")
        raise unknown("task", name, [task.name for task in content.tasks])
    return found


def new_description(source: PictureSource, ancestor: str | None, size: int | None) -> Description:
    """The model that suits the pictures of its first task."""
    found = shipped_ancestor(ancestor or DEFAULT)
    least, most = SIDES
    if size is not None and not least <= size <= most:
        raise RivalsError(f"--size is {size}, but pictures have {least} to {most} pixels a side.")
    side = size or fitting_side(picture_source.survey(source), ANCESTORS_SIDES)
    channels = 1 if source.sound is not None else 3  # a spectrogram has no colours
    return Description(
        0, NETWORK, tuple(width * limits.RIVALS for width in found.widths), limits.RIVALS,
        (channels, side, side), (), ancestor=AncestorName(found.name, found.sha256),
        sound=source.sound,
    )  # fmt: skip


def check_same(content: Description, ancestor: str | None, size: int | None) -> None:
    """Refuse options that only a new model can follow, unless the model is just so."""
    began = content.ancestor.name if content.ancestor else "none"
    asked: Sequence[tuple[str, Any, Any]] = (
        ("ancestor", ancestor, began), ("size", size, content.input_shape[1])
    )  # fmt: skip
    for option, wanted, found in asked:
        if wanted is not None and wanted != found:
            raise RivalsError(
                f"--{option} {wanted} is for a new model, but this one was made with {option} "
                f"{found}; leave it out, or choose another --model."
            )
