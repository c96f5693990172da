"""A loaded artefact: pictures in, answers out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.answer import Answer, Choice
from rivals.edge.artefact_files import NATIVE, check_native, find_suffix, read_artefact
from rivals.edge.runtime import open_runtime
from rivals.errors import RivalsError
from rivals.io.memory_limit import limited_memory
from rivals.io.pictures import Picture, to_pixels
from rivals.io.sounds import Sound
from rivals.naming.frame_filter import LEAST, Evidence, ranked

BATCH_SIZE = 64  # images of one pass, at most
BATCH_VALUES = 2**20  # and their pixels; limits memory
MEMORY = 512 * 2**20  # bytes that loading or one pass may take, beyond COPIES of the artefact
COPIES = 4


class Artefact:
    """An exported ticket, or an exported model of several tasks, ready to run."""

    def __init__(self, path: str | Path, threads: int = 1, run_native: bool = False) -> None:
        self.path = Path(path)
        check_native(self.path, find_suffix(self.path), run_native)
        files = read_artefact(self.path)
        self.card = files.card
        size = sum(len(data) for data in files.content)
        # Native code is trusted, and a compiler takes what it needs.
        self.memory = None if files.suffix in NATIVE else MEMORY + COPIES * size
        with self._limited():
            self.runtime = open_runtime(files, threads)

    def classify(self, picture: Picture | Sound, reject: float | None = None) -> Answer:
        """The class of one picture: a path, bytes, a PIL image, an array or a tensor; or of one
        sound: a path or bytes of a WAV file, or (rate, samples)."""
        card = self.card
        pixels = to_pixels(picture, card.input_shape, card.scale, sound=card.sound)
        return self.answers(pixels[None], reject)[0]

    def check(self, reject: float | None) -> None:
        """Refuse what cannot be asked of this artefact."""
        if reject is not None and not self.card.familiar:
            raise RivalsError(
                f"--reject needs to know how familiar a picture looks, which {self.path} does not "
                "say; use the model's folder, or export a whole model that began with an ancestor."
            )
        if reject is not None and not 0 <= reject < 1:
            raise RivalsError(
                f"The share to reject is {reject}, but is at least 0 and below 1; 0.05 refuses "
                "about 5 % of the pictures that are known."
            )

    def answers(self, images: NDArray[np.uint8], reject: float | None = None) -> list[Answer]:
        """One answer per image; uint8 images (n, channels, height, width) with white = `scale`.

        `reject` is the share of known pictures that may be answered `rejected` by mistake.
        """
        self.check(reject)
        card = self.card
        if card.familiar:
            return [
                Answer(ranked(each.classes, np.exp(each.log_probabilities)), each.rejected)
                for each in self.evidence(images, reject)
            ]
        if card.ranks:
            return self._ranked(images)
        if card.names_task:  # it gives the best class alone
            return [
                Answer((Choice(card.classes[task][label], card.tasks[task], float(confidence)),))
                for task, label, confidence in zip(*self.decide(images), strict=True)
            ]
        answers = []
        for row in softmax(self.scores(images)):
            order = np.argsort(-row, kind="stable")
            choices = (Choice(card.classes[0][k], card.tasks[0], float(row[k])) for k in order)
            answers.append(Answer(tuple(choices)))
        return answers

    def decide(self, images: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Task index, class index within the task, and confidence of each image: (n,) each."""
        if self.card.names_task:
            task, label, confidence = self.run(images)[:3]
            self._check_decisions(task, label, confidence)
            return task, label, confidence
        probabilities = softmax(self.scores(images))
        label = probabilities.argmax(1)
        return np.zeros_like(label), label, probabilities.max(1)

    def evidence(self, images: NDArray[np.uint8], reject: float | None = None) -> list[Evidence]:
        """What each image says of the classes of all tasks."""
        self.check(reject)
        classes = tuple(zip(self.card.tasks, self.card.classes, strict=True))
        if not self.card.familiar:
            if self.card.names_task:
                raise RivalsError(
                    f"{self.path} ranks no classes of the tasks that it does not name, which "
                    "frames of a stream are joined by; use the model's folder, or export one task."
                )
            return [Evidence.of_answer(each) for each in self.answers(images)]
        task, label, confidence, probabilities, familiar = self.run(images)
        self._check_decisions(task, label, confidence)
        count = sum(map(len, self.card.classes))
        if probabilities.shape != (len(images), count) or familiar.shape != (len(images),):
            raise self._wrong_count(images, probabilities, count)
        rejected = [False] * len(images) if reject is None else (familiar < reject).tolist()
        logs = np.log(np.maximum(probabilities.astype(np.float64), LEAST))
        return [Evidence(classes, row, each) for row, each in zip(logs, rejected, strict=True)]

    def _wrong_count(
        self, images: NDArray[np.uint8], found: NDArray[Any], count: int
    ) -> RivalsError:
        return RivalsError(
            f"{self.path} gives {_size(found)} probabilities for {len(images)} images, "
            f"but its card names {count} classes; export it again."
        )

    def _ranked(self, images: NDArray[np.uint8]) -> list[Answer]:
        """The classes of the task that is named, by their probability in it."""
        task, label, confidence, probabilities = self.run(images)
        self._check_decisions(task, label, confidence)
        ends = np.cumsum([len(classes) for classes in self.card.classes])
        if probabilities.shape != (len(images), ends[-1]):
            raise self._wrong_count(images, probabilities, ends[-1])
        answers = []
        for number, row in zip(task.tolist(), probabilities, strict=True):
            name, classes = self.card.tasks[number], self.card.classes[number]
            own = row[ends[number] - len(classes) : ends[number]]
            order = np.argsort(-own, kind="stable")
            answers.append(Answer(tuple(Choice(classes[k], name, float(own[k])) for k in order)))
        return answers

    def scores(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Logits (n, classes) of images (n, channels, height, width)."""
        if self.card.names_task:
            raise RivalsError(
                f"{self.path} holds {len(self.card.tasks)} tasks and answers with the task and the "
                "class; use `decide` or `answers`."
            )
        scores = self.run(images)[0]
        if scores.shape != (len(images), len(self.card.classes[0])):
            raise RivalsError(
                f"{self.path} gives {_size(scores)} scores for {len(images)} images, but its card "
                f"names {len(self.card.classes[0])} classes; export it again."
            )
        return scores

    def run(self, images: NDArray[np.uint8]) -> list[NDArray[Any]]:
        """All outputs of the artefact, computed in batches; numbers that are not finite are
        refused."""
        wanted = self.card.input_shape
        if images.dtype != np.uint8 or images.shape[1:] != wanted or not len(images):
            size = " × ".join(str(side) for side in wanted)
            raise RivalsError(
                f"{self.path} takes uint8 images (n, {size}) with n of at least 1, but got "
                f"{images.dtype} {images.shape}."
            )
        size = max(1, min(BATCH_SIZE, BATCH_VALUES // images[0].size))
        outputs: list[Sequence[NDArray[Any]]] = []
        for start in range(0, len(images), size):
            some = self.card.prepare(images[start : start + size])
            with self._limited():
                outputs.append(self.runtime(some))
            self._check_outputs(outputs[-1], len(some))
        return [np.concatenate(parts) for parts in zip(*outputs, strict=True)]

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """The memory that an artefact may take, whatever it says; errors are one sentence."""
        if self.memory is None:
            yield
            return
        try:
            with limited_memory(self.memory):
                yield
        except MemoryError as error:
            raise RivalsError(
                f"{self.path} needs more memory than an artefact of its size; export it again."
            ) from error

    def _check_outputs(self, outputs: Sequence[NDArray[Any]], images: int) -> None:
        wanted = 3 + self.card.ranks + self.card.familiar if self.card.names_task else 1
        if len(outputs) != wanted or any(
            not isinstance(each, np.ndarray) or each.dtype.kind not in "fiu" or not each.ndim
            or len(each) != images for each in outputs
        ):  # fmt: skip
            raise RivalsError(
                f"{self.path} does not give what its card says, {wanted} "
                f"number{'s' * (wanted > 1)} or lists of numbers for each image; export it again."
            )
        if not all(np.isfinite(each).all() for each in outputs):
            raise RivalsError(
                f"{self.path} answers with numbers that are not finite, which is no class; "
                "export it again."
            )

    def _check_decisions(
        self, task: NDArray[Any], label: NDArray[Any], confidence: NDArray[Any]
    ) -> None:
        sizes = np.array([len(classes) for classes in self.card.classes])
        whole = task.dtype.kind in "iu" and label.dtype.kind in "iu"
        if (
            not whole or not task.ndim == label.ndim == confidence.ndim == 1
            or not ((task >= 0) & (task < len(sizes))).all()
            or not ((label >= 0) & (label < sizes[task])).all()
        ):  # fmt: skip
            raise RivalsError(
                f"{self.path} names a task or a class that its card does not have; export it again."
            )


def load(path: str | Path, threads: int = 1, run_native: bool = False) -> Artefact:
    """Load the artefact at `path`; a RivalsError says what is wrong with it.

    Args:
        path: A file or folder that `rivals export` wrote.
        threads: Threads of the runtime.
        run_native: Allow artefacts that run code of their own: the folder of a C program is
            compiled and run on this machine, and so is a `.pte` program. Only for what you trust.
    """
    return Artefact(path, threads, run_native)


def _size(values: NDArray[Any]) -> str:
    return " × ".join(str(side) for side in values.shape)


def softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities (n, classes)."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    shares: NDArray[np.float32] = powers / powers.sum(1, keepdims=True)
    return shares
