"""The front door: a model is a folder that learns tasks, answers, and forgets on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from rivals.answer import Answer, Choice
from rivals.errors import RivalsError
from rivals.io.pictures import Picture, to_pixels, to_shown
from rivals.io.sounds import Sound
from rivals.model import dropping, manifest
from rivals.model.dropping import Dropped
from rivals.model.folder import ModelFolder
from rivals.model.manifest import TaskFacts
from rivals.naming.familiarity import check_share
from rivals.naming.frame_filter import Evidence, FrameFilter, ranked
from rivals.naming.predictor import Predictor
from rivals.tickets.ticket import Ticket

if TYPE_CHECKING:  # imported when learning, testing or exporting begins: answering is quick
    from rivals.deploy.exported import Exported
    from rivals.deploy.teachable.teachable_export import ExportedTeachable
    from rivals.learn.callbacks import Callback
    from rivals.logs.open_loggers import LogTarget
    from rivals.model.data_source import PictureData
    from rivals.model.events import Listener
    from rivals.model.explaining import Explanation
    from rivals.model.joining import Joined
    from rivals.model.learning import Learned
    from rivals.model.packing import PackedModel
    from rivals.model.testing import TestReport

BATCH = 64  # pictures that are answered at once


class Model:
    """A model in a folder. It learns one task after the other and forgets nothing.

    Args:
        path: The folder of the model. It is made when the first task is learned.
        device: Where to compute: cpu, cuda, mps or auto.
        require_signature: The file of a public key; then only a model is read that was signed with
            its private key (`rivals sign`) and not changed since.

    >>> import numpy as np, rivals
    >>> model = rivals.Model("parts")
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    >>> images[:20, :8], labels = 0, ["screw"] * 20 + ["nut"] * 20
    >>> learned = model.learn((images, labels), name="bin-1", epochs=5)
    >>> [task.name for task in model.tasks]
    ['bin-1']
    >>> model.predict(images[0]).task
    'bin-1'
    """

    def __init__(
        self, path: str | PathLike[str], *, device: str = "cpu",
        require_signature: str | PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        self.path, self.device = Path(path), device
        self.key = None if require_signature is None else Path(require_signature)
        self._opened: ModelFolder | None = None
        self._raw = b""  # model.json as it was when it was opened

    def __repr__(self) -> str:
        names = ", ".join(task.name for task in self.tasks) or "nothing yet"
        return f"Model({str(self.path)!r}) that knows {names}"

    def __contains__(self, task: object) -> bool:
        return any(each.name == task for each in self.tasks)

    # What it knows -----------------------------------------------------------------------------

    @property
    def tasks(self) -> list[TaskFacts]:
        """The tasks in the order in which they were learned: name, classes, accuracy, bytes …"""
        return self.opened().tasks if manifest.exists(self.path) else []

    def opened(self) -> ModelFolder:
        """The folder as it is now; read again after another process has changed it."""
        raw = manifest.read_raw(self.path, self.key)
        if self._opened is None or self._raw != raw:
            content = manifest.parse(self.path, raw)
            self._opened = ModelFolder(self.path, content, self.device, key=self.key)
            self._raw = raw
        return self._opened

    def predictor(self) -> Predictor:
        """All tickets, ready to answer."""
        model = self.opened()
        if not model.tasks:
            raise RivalsError(
                f"The model {self.path} knows no task yet; teach it with `rivals learn`."
            )
        return model.predictor()

    # Learning and forgetting -------------------------------------------------------------------

    def learn(
        self,
        data: PictureData,
        name: str | None = None,
        *,
        classes: Sequence[str] | None = None,
        again: bool = False,
        anew: bool = False,
        epochs: int | None = None,
        minutes: float | None = None,
        ram: float | None = None,
        augmentation: str | None = None,
        strict: bool = False,
        size: int | None = None,
        grey: bool | None = None,
        network: str | None = None,
        ancestor: str | PathLike[str] | None = None,
        new: float | str | None = "auto",
        seed: int | None = None,
        log: LogTarget = None,
        log_every: int = 10,
        callbacks: Sequence[Callback] = (),
        listener: Listener = lambda event: None,
        asked_to_stop: Callable[[], bool] = lambda: False,
        started: float | None = None,
    ) -> Learned:
        """Learn a new task; what is known already keeps every bit.

        Args:
            data: A folder with a subfolder for each class, a map-style dataset of (picture, label),
                a dataset of Hugging Face, or a pair of arrays, (images, labels). Sounds instead of
                pictures are WAV files, or (rate, samples).
            name: The name of the task; by default that of the folder.
            classes: Names of the classes, where labels are numbers.
            again: Refine a task that is known with more pictures of it.
            anew: Replace a task that is known by what is learned from these pictures alone; its
                classes may be others. Until the end the model keeps the old one.
            epochs: How often each picture is shown; by default it follows from their number.
            minutes: Time for all of it, at most.
            ram: Memory of this process in MB, at most.
            augmentation: none, flip, crop or crop-flip.
            strict: Refuse a folder with files that cannot be learned from.
            size: Pixels a side that a new model looks at.
            grey: A new model without colours.
            network: conv-small, conv-residual, lenet, mlp or resnet-small; then without ancestor.
            ancestor: What a new model starts from: small (the default), tiny, none for random
                weights, the folder of an ancestor (`rivals.make_ancestor`), or timm:NAME, a
                backbone of timm with weights from the hub; timm:NAME=FILE takes them from a file.
            new: Share of blocks that get a new unit, 0 to 1; auto: the pictures decide.
            seed: All randomness of a new model comes from it.
            log: Where numbers of steps go: csv, tensorboard, mlflow or wandb, several as
                "tensorboard,csv", a `rivals.Logger`, or a list; files go to a folder beside the
                model, MODEL-log/TASK.
            log_every: Steps between two that are logged.
            callbacks: Callbacks of the trainer.
            listener: Called with every event, a dictionary.
            asked_to_stop: Asked at every step; then `rivals.Interrupted` is raised.
            started: When the minutes began (time.monotonic).

        Returns:
            What was learned: accuracy on held-out pictures, bytes, seconds, and what was left out.
        """
        from rivals.model.learn_options import share_of_new
        from rivals.model.learning import learn

        return learn(
            data, self.path, name, classes=classes, log=log, log_every=log_every,
            callbacks=callbacks, listener=listener, asked_to_stop=asked_to_stop, started=started,
            device=self.device, again=again, anew=anew, strict=strict, minutes=minutes, ram=ram,
            network=network, size=size, grey=grey, new=share_of_new(new),
            ancestor=None if ancestor is None else fspath(ancestor),
            epochs=epochs, augmentation=augmentation, seed=seed,
        )  # fmt: skip

    def add_picture(
        self, picture: Picture | Sound, label: str, task: str | None = None
    ) -> TaskFacts:
        """Teach one picture of a class, in the time of an answer.

        The task must be one that is kept as statistics of features, as those of few photos are.

        Args:
            picture: As for `predict`.
            label: Its class; one that the task does not know is new in it.
            task: The task; only needed where several could be meant.
        """
        from rivals.model.adding import add_picture, find_task
        from rivals.streams.picture_source import named

        self.check(task)
        opened = self.opened()
        content = opened.description
        pixels = to_pixels(picture, content.input_shape, sound=content.sound)
        self._opened = None  # after an error it is read anew
        made = add_picture(opened, torch.from_numpy(pixels), label, task)
        self._opened, self._raw = made, manifest.read_raw(self.path)
        return find_task(made, named(label, "class"), task)

    def drop(self, task: str) -> Dropped:
        """Take a task out, exactly: the other tasks keep every bit."""
        return dropping.drop(self.path, task)

    def join(
        self, other: Model | str | PathLike[str], out: str | PathLike[str], *,
        rename: Mapping[str, str] | None = None,
    ) -> Joined:  # fmt: skip
        """Make a new model with the tasks of this one and of another; every ticket keeps every bit.

        Both must have started from the same ancestor, with the same network.

        Args:
            other: The other model, or its folder.
            out: The new folder.
            rename: New names for tasks of the other, where both have a task of one name.
        """
        from rivals.model.joining import join

        theirs = other if isinstance(other, Model) else Model(other)
        for each in (self, theirs):
            each.opened()  # what is not signed as it must be is not joined either
        return join(self.path, theirs.path, Path(out), rename)

    # Answers -----------------------------------------------------------------------------------

    @overload
    def predict(
        self, picture: Picture | Sound, task: str | None = ..., reject: float | None = ...
    ) -> Answer: ...

    @overload
    def predict(
        self, picture: list[Any], task: str | None = ..., reject: float | None = ...
    ) -> list[Answer]: ...

    def predict(
        self, picture: Picture | Sound | list[Any], task: str | None = None,
        reject: float | None = None,
    ) -> Answer | list[Answer]:  # fmt: skip
        """What is on a picture: its class, its task, and the confidence.

        Args:
            picture: A path, bytes, a PIL image, an array or a tensor; or a list of them. A model of
                sounds takes a path or bytes of a WAV file, or (rate, samples).
            task: The task, where it is known; otherwise the model names one.
            reject: Answer `rejected` to pictures that look less familiar than all but this share
                of the held-out ones: 0.05 refuses about 5 % of the pictures that are known.
        """
        self.check(task, reject)
        pictures = picture if isinstance(picture, list) else [picture]
        content = self.opened().description
        answers: list[Answer] = []
        for start in range(0, len(pictures), BATCH):
            some = [
                to_pixels(each, content.input_shape, sound=content.sound)
                for each in pictures[start : start + BATCH]
            ]
            answers += self.answers(np.stack(some), task, reject)
        return answers if isinstance(picture, list) else answers[0]

    def check(self, task: str | None = None, reject: float | None = None) -> None:
        """Refuse what cannot be asked of this model."""
        self.predictor()
        if reject is not None:
            check_share(reject)
        if task is not None:
            self.opened().task(task)

    def answers(
        self, images: NDArray[np.uint8], task: str | None = None, reject: float | None = None
    ) -> list[Answer]:
        """Answers for pixels (n, channels, height, width) of the model's own size."""
        self.check(task, reject)
        predictor = self.predictor()
        name = None if task is None else self.opened().task(task).name
        found = predictor.predict(self._pixels(images), name, reject)
        if found.joint is not None:
            known = zip(predictor.tasks, predictor.records, strict=True)
            named = tuple((task, record.classes) for task, record in known)
            refused = [False] * len(images) if found.rejected is None else found.rejected.tolist()
            rows = zip(found.joint.double().cpu().numpy(), refused, strict=True)
            return [Answer(ranked(named, row), each) for row, each in rows]
        answers = []
        for image, member in enumerate(found.task.tolist()):
            classes = predictor.records[member].classes
            values, order = found.probabilities(image).sort(descending=True, stable=True)
            choices = tuple(
                Choice(classes[place], predictor.tasks[member], value)
                for place, value in zip(order.tolist(), values.tolist(), strict=True)
            )
            rejected = found.rejected is not None and bool(found.rejected[image])
            answers.append(Answer(choices, rejected))
        return answers

    def watch(
        self, frames: Iterable[Picture | Sound], task: str | None = None,
        reject: float | None = None,
    ) -> Iterator[Answer]:  # fmt: skip
        """What a stream of pictures shows: an answer after every frame, by the last ones together.

        >>> import numpy as np, rivals
        >>> images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
        >>> images[:20, :8], labels = 0, ["screw"] * 20 + ["nut"] * 20
        >>> model = rivals.Model("parts")
        >>> learned = model.learn((images, labels), name="bin-1", epochs=5)
        >>> [answer.task for answer in model.watch(images[:3])]
        ['bin-1', 'bin-1', 'bin-1']

        Args:
            frames: Pictures as `predict` takes them, in their order; of a camera, say.
            task, reject: As for `predict`.
        """
        self.check(task, reject)
        return self._watched(frames, task, reject)

    def _watched(
        self, frames: Iterable[Picture | Sound], task: str | None, reject: float | None
    ) -> Iterator[Answer]:
        together = FrameFilter(reject)
        for frame in frames:
            content = self.opened().description
            pixels = to_pixels(frame, content.input_shape, sound=content.sound)
            yield together(self.evidence(pixels[None], task, reject)[0])

    def evidence(
        self, images: NDArray[np.uint8], task: str | None = None, reject: float | None = None
    ) -> list[Evidence]:
        """What pixels (n, channels, height, width) of the model's own size say of all classes."""
        self.check(task, reject)
        predictor, pixels = self.predictor(), self._pixels(images)
        name = None if task is None else self.opened().task(task).name
        asked = [name] if name is not None else list(predictor.tasks)
        records = dict(zip(predictor.tasks, predictor.records, strict=True))
        classes = tuple((each, records[each].classes) for each in asked)
        rejected = [False] * len(images)
        if name is not None or reject is not None:
            found = predictor.predict(pixels, name, reject)
            rejected = rejected if found.rejected is None else found.rejected.tolist()
        if name is not None:
            values = torch.log_softmax(found.outputs[0].scores, 1)
        else:
            values = predictor.log_probabilities(pixels)
        rows = values.double().cpu().numpy()
        return [Evidence(classes, *each) for each in zip(rows, rejected, strict=True)]

    def _pixels(self, images: NDArray[np.uint8]) -> torch.Tensor:
        own = np.require(images, requirements=["C", "W"])  # torch warns otherwise
        return torch.from_numpy(own).to(self.opened().method.device)

    def explain(
        self, picture: Picture | Sound, task: str | None = None, *, label: str | None = None
    ) -> Explanation:
        """Which part of a picture decided for its class, and which classes are near.

        Args:
            picture: A path, bytes, a PIL image, an array or a tensor; or a sound, as `predict`
                takes it, of which the spectrogram is shown.
            task: The task, where it is known; otherwise the model names one.
            label: A class that is to be explained in place of the one that is answered.
        """
        from rivals.model.explaining import explain
        from rivals.model.heat_picture import LONGEST

        content = self.opened().description
        pixels = to_pixels(picture, content.input_shape, sound=content.sound)
        seen = pixels if content.sound or isinstance(picture, tuple) else picture
        shown = to_shown(seen, content.input_shape, LONGEST)
        (answer,) = self.answers(pixels[None], task)
        return explain(self.opened(), pixels, shown, answer, task, label)

    def test(
        self, data: PictureData, task: str | None = None, *, classes: Sequence[str] | None = None
    ) -> TestReport:
        """Accuracy on pictures that were not learned, with its interval, class by class.

        Args:
            data: As for `learn`; its classes must be known to the model.
            task: The task, where it is known; otherwise the model names one for each picture.
            classes: Names of the classes, where labels are numbers.
        """
        from rivals.model.data_source import open_source
        from rivals.model.testing import find_mistakes, report
        from rivals.streams import picture_source

        self.check(task)
        model = self.opened()
        source = open_source(data, task or "the test pictures", classes, fewest=1)
        source = source.read_as(model.description.sound, f"the model {self.path}")
        known = {c: each.name for each in model.tasks for c in each.classes}
        if task is not None:
            known = dict.fromkeys(model.task(task).classes, model.task(task).name)
        for label in source.classes:
            if label not in known:
                raise RivalsError(
                    f"The class '{label}' of {source.place} is not known to "
                    f"{f'the task {task}' if task else f'the model {self.path}'}; it knows "
                    f"{', '.join(list(known)[:10])}."
                )
        pictures = picture_source.read(
            source, model.description.input_shape, repeats=True, fewest=1
        )
        truth = [pictures.classes[label] for label in pictures.labels.tolist()]
        answers = self._all_answers(pictures.images, task)
        found = [answer.label for answer in answers]
        given, homes = None, {known[label] for label in source.classes}
        if task is None and len(homes) == 1:
            with_task = self._all_answers(pictures.images, homes.pop())
            right = sum(a.label == t for a, t in zip(with_task, truth, strict=True))
            given = 100 * right / len(truth)
        left_out = [each.path for each in pictures.left_out]
        wrong = find_mistakes(pictures.items, pictures.images, truth, answers)
        sure = [answer.confidence for answer in answers]
        return report(truth, found, task or "", given, left_out, wrong, sure)

    def _all_answers(self, images: NDArray[np.uint8], task: str | None) -> list[Answer]:
        parts = range(0, len(images), BATCH)
        return [a for start in parts for a in self.answers(images[start : start + BATCH], task)]

    # Taking away -------------------------------------------------------------------------------

    def ticket(self, task: str) -> Ticket:
        """The small network of one task: an ordinary `nn.Module` with its preprocessing."""
        return self.opened().ticket(task)

    def export(
        self, task: str | None, out: str | PathLike[str], to: str | None = None, **options: Any
    ) -> Exported:
        """Write a ticket as a file for a runtime, run it there, compare, keep it if it agrees.

        Args:
            task: The task whose ticket it is; None with `all_tasks=True`.
            out: Where it goes, e.g. screws.onnx.
            to: onnx, ort, onnx-int8, litert, executorch, c or web; by default from the ending of
                `out`.
            options: `images`, pictures to compare with: a folder or a dataset, as for `learn`;
                `all_tasks`; for web `runtime`.
        """
        from rivals.deploy.exporting import export_from

        self.opened()  # what is not signed as it must be is not exported either
        return export_from(self.path, Path(out), to, task, **options)

    def export_teachable(
        self, out: str | PathLike[str], *, images: str | PathLike[str] | None = None
    ) -> ExportedTeachable:
        """Write C with which a device learns and forgets by itself, from what this model knows.

        Args:
            out: The folder where it goes.
            images: A folder of pictures, whatever they show, for the ranges of activations.
        """
        from rivals.deploy.teachable.teachable_export import export_teachable

        self.opened()
        return export_teachable(
            Path(out), self.path, images=None if images is None else Path(images)
        )

    # Sharing -----------------------------------------------------------------------------------

    def pack(self, out: str | PathLike[str]) -> PackedModel:
        """Write the model as one new file; the same model gives the same bytes on every machine."""
        from rivals.model.packing import pack

        self.opened()  # what is not signed as it must be is not packed either
        return pack(self.path, Path(out))

    @classmethod
    def unpack(
        cls, file: str | PathLike[str], folder: str | PathLike[str], *, device: str = "cpu",
        require_signature: str | PathLike[str] | None = None,
    ) -> Model:  # fmt: skip
        """The model in a file that `pack` wrote, checked and brought into a new folder."""
        from rivals.model.packing import unpack

        key = None if require_signature is None else Path(require_signature)
        unpack(Path(file), Path(folder), key)
        return cls(folder, device=device, require_signature=require_signature)

    def push_to_hub(
        self, name: str, *, report: TestReport | None = None, license: str | None = None,
        private: bool | None = None, revision: str | None = None, card: bool = True,
        token: str | None = None, endpoint: str | None = None,
    ) -> str:  # fmt: skip
        """Upload the model to the Hugging Face Hub, with a card; gives the commit's address.

        Args:
            name: The repository, user/name; made if it is not there.
            report: What `test` gave, for the card: accuracy on new pictures, confusion matrix.
            license: Of your model, as the Hub names it, e.g. apache-2.0; by default none is named.
            private: Whether a new repository is private; by default the Hub's own choice.
            revision: The branch; by default main.
            card: False leaves the README.md of the repository as it is.
            token: A token of the Hub; by default that of `hf auth login` or $HF_TOKEN.
            endpoint: The address of another Hub; by default $HF_ENDPOINT or huggingface.co.
        """
        from rivals.io.hub import HubRepository
        from rivals.model.hub_model import push

        self.opened()  # what is not signed as it must be is not pushed either
        return push(
            self.path, HubRepository(name, token, endpoint), report=report, license=license,
            private=private, revision=revision, card=card,
        )  # fmt: skip

    @classmethod
    def from_pretrained(
        cls, name: str, folder: str | PathLike[str] | None = None, *, revision: str | None = None,
        token: str | None = None, endpoint: str | None = None, device: str = "cpu",
        require_signature: str | PathLike[str] | None = None,
    ) -> Model:  # fmt: skip
        """A model from the Hugging Face Hub, checked and brought into a new folder.

        Args:
            name: The repository, user/name.
            folder: The new folder; by default the name after the slash, in the working folder.
            revision: A branch, a tag or a commit; by default the newest of main.
            token, endpoint: As for `push_to_hub`.
            device, require_signature: As for `Model`.
        """
        from rivals.io.hub import HubRepository
        from rivals.model.hub_model import pull

        place = Path(name.rpartition("/")[2] if folder is None else folder)
        key = None if require_signature is None else Path(require_signature)
        pull(HubRepository(name, token, endpoint), place, revision, key)
        return cls(place, device=device, require_signature=require_signature)
