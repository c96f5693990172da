"""`TicketClassifier`: a model that learns tasks, as an estimator of scikit-learn.

    fit(X, y)                     one task; what was learned before is forgotten
    partial_fit(X, y, task="b")   one task more; what was learned before keeps every bit
    predict(X), predict(X, task)  over the classes of all tasks, or of one

It is a `rivals.Model` in a temporary folder of its own. In a pickle the files of that folder are
bytes, and a copy gets a folder of its own.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.model.model import BATCH, Model
from rivals.sklearn.row_pictures import RowPictures, RowsError
from rivals.streams.picture_source import named
from rivals.tickets.ticket import Ticket

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as missing:
    raise RivalsError(
        f"rivals.sklearn needs the package {missing.name}, not installed here; "
        "run pip install 'rivals[sklearn]'."
    ) from missing

if TYPE_CHECKING:
    from rivals.deploy.exported import Exported

Labels = NDArray[Any]


class TicketClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies pictures given as arrays, learns tasks one after the other and forgets nothing.

    X is (n, h, w), (n, h, w, 3), (n, 3, h, w), or flat rows (n, features). Rows are square grey
    pictures, or square ones in colour, if their number of values allows; otherwise `image_shape`
    says what they are. Rows of fewer than 64 values are a table, which is laid out as a picture.
    Bytes are pixels; other numbers are scaled by the smallest and the largest one learned first.

    Args:
        image_shape: What a flat row is: (h, w), (h, w, 3) or (3, h, w).
        pixel_range: The values of black and of white; None: 0 and 255 of bytes, else the smallest
            and the largest value learned first.
        epochs: How often each picture is shown; None: it follows from their number.
        minutes: Time for a task, at most.
        ancestor: What the model starts from, as in `Model.learn`: small (None), tiny, none …
        network: conv-small, conv-residual, lenet, mlp or resnet-small; then without ancestor.
        size: Pixels a side that the network looks at.
        augmentation: none, flip, crop or crop-flip.
        new: Share of blocks that get a new unit, 0 to 1; auto: the pictures decide.
        random_state: All randomness comes from it: a number, a RandomState, or None.
        device: Where to compute: cpu, cuda, mps or auto.

    Attributes:
        classes_: The labels of all tasks, sorted.
        tasks_: The names of the tasks in the order in which they were learned.
        n_features_in_: Values of a row, or of a picture.
        model_: The `rivals.Model`; its folder is there as long as this estimator.

    >>> from sklearn.datasets import load_digits
    >>> from rivals.sklearn import TicketClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> one, two = (y < 2).nonzero()[0], ((y == 2) | (y == 3)).nonzero()[0]
    >>> classifier = TicketClassifier(ancestor="tiny").fit(X[one[:40]], y[one[:40]])
    >>> classifier = classifier.partial_fit(X[two[:40]], y[two[:40]], task="two-three")
    >>> classifier.classes_.tolist(), classifier.tasks_
    ([0, 1, 2, 3], ['task-1', 'two-three'])
    >>> classifier.predict(X[two[40:43]], task="two-three").tolist() == y[two[40:43]].tolist()
    True
    >>> classifier.predict_proba(X[:5]).shape
    (5, 4)
    """

    classes_: Labels
    model_: Model
    _folder: tempfile.TemporaryDirectory[str]  # the model's; it goes when nothing refers to it
    _pictures: RowPictures
    _labels: dict[str, Any]  # by the names of the model's classes

    def __init__(
        self,
        *,
        image_shape: tuple[int, ...] | None = None,
        pixel_range: tuple[float, float] | None = None,
        epochs: int | None = None,
        minutes: float | None = None,
        ancestor: str | PathLike[str] | None = None,
        network: str | None = None,
        size: int | None = None,
        augmentation: str | None = None,
        new: float | str | None = "auto",
        random_state: Any = 0,
        device: str = "cpu",
    ) -> None:
        self.image_shape, self.pixel_range = image_shape, pixel_range
        self.epochs, self.minutes, self.ancestor, self.network = epochs, minutes, ancestor, network
        self.size, self.augmentation, self.new = size, augmentation, new
        self.random_state, self.device = random_state, device

    # Learning ----------------------------------------------------------------------------------

    def fit(self, X: ArrayLike, y: ArrayLike) -> TicketClassifier:  # noqa: N803
        """Learn one task, task-1, from pictures X with labels y; nothing older is kept."""
        with self._refusals():
            rows, shape, labels = self._read_both(X, y, first=True)
            pictures = RowPictures.of(rows, shape or self.image_shape, self.pixel_range)
            self._learn(pictures, rows, labels, None, first=True)
        return self

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None,  # noqa: N803
        task: str | None = None,
    ) -> TicketClassifier:  # fmt: skip
        """Learn one more task, or more pictures of a known one.

        Args:
            X: Pictures of the shape that was learned before.
            y: Their labels, with every class of the task among them.
            classes: The classes of the task, if they are to be compared with those in y.
            task: Its name. Without one, pictures with the classes of a known task are added to it,
                and new classes are a new task: task-1, task-2 …
        """
        first = not self.__sklearn_is_fitted__()
        with self._refusals():
            rows, shape, labels = self._read_both(X, y, first)
            if classes is not None:
                check_all_there(labels, classes)
            if first:
                pictures = RowPictures.of(rows, shape or self.image_shape, self.pixel_range)
            else:
                pictures = self._pictures
                pictures.check_shape(shape)
                pictures.check_scale(rows)
            self._learn(pictures, rows, labels, task, first)
        return self

    def _learn(
        self, pictures: RowPictures, rows: NDArray[Any], labels: Labels, task: str | None,
        first: bool,
    ) -> None:  # fmt: skip
        """Teach the model, or a new one; what is fitted already stays if that is refused."""
        names = label_names(labels, {} if first else self._labels)
        if len(names) < 2:
            raise RowsError(
                f"y has one class, {next(iter(names))!r}, but a task needs at least two."
            )
        folder = tempfile.TemporaryDirectory(prefix="rivals-") if first else self._folder
        model = Model(Path(folder.name) / "model", device=self.device)
        task, again = self._task(model, list(names), task)
        seed = check_random_state(self.random_state).randint(2**31) if first else None
        if first and isinstance(self.random_state, int | np.integer):
            seed = int(self.random_state)
        texts = {label: text for text, label in names.items()}
        given = np.array([texts[label] for label in labels.tolist()])
        made_with: dict[str, Any] = {
            "ancestor": self.ancestor,
            "network": self.network,
            "size": self.size,
        }
        model.learn(
            (pictures(rows), given), task, again=again, epochs=self.epochs, minutes=self.minutes,
            augmentation=self.augmentation, new=self.new, seed=seed,
            **(made_with if first else {}),
        )  # fmt: skip
        self._folder, self.model_, self._pictures = folder, model, pictures
        self._labels = names if first else {**self._labels, **names}
        self.classes_ = np.unique(labels if first else np.concatenate([self.classes_, labels]))
        self.n_features_in_ = pictures.features

    def _task(self, model: Model, classes: list[str], task: str | None) -> tuple[str, bool]:
        """The name of the task with these classes, and whether it is known."""
        known = {each.name: set(each.classes) for each in model.tasks}
        if task is not None:
            return task, task in known
        for name, others in known.items():
            if others == set(classes):
                return name, True
        shared = {name for name, others in known.items() if others & set(classes)}
        if shared:
            raise RowsError(
                f"Some of the classes of y belong to the task '{min(shared)}', but not all, or "
                "more; name the task with task=."
            )
        number = len(known) + 1
        while f"task-{number}" in known:
            number += 1
        return f"task-{number}", False

    # Answers -----------------------------------------------------------------------------------

    def predict(self, X: ArrayLike, task: str | None = None) -> Labels:  # noqa: N803
        """The most probable label of each picture, among those of all tasks or of one."""
        best = self.predict_proba(X, task).argmax(1)
        found: Labels = self.classes_[best]
        return found

    def predict_proba(
        self, X: ArrayLike, task: str | None = None  # noqa: N803
    ) -> NDArray[np.float64]:  # fmt: skip
        """Probabilities (n, classes), in the order of `classes_`; with a task, 0 for others."""
        check_is_fitted(self)
        with self._refusals():
            rows, shape = unrolled(X)
            rows = validate_data(self, rows, reset=False, **READ)
            self._pictures.check_shape(shape)
            self.model_.check(task)
            found = np.concatenate(
                [self._probabilities(rows[i : i + BATCH], task) for i in range(0, len(rows), BATCH)]
            )
        shares: NDArray[np.float64] = found / found.sum(1, keepdims=True)
        return shares

    def _probabilities(self, rows: NDArray[Any], task: str | None) -> NDArray[np.float64]:
        """Of some rows, summed where a class belongs to several tasks: (n, classes)."""
        opened, predictor = self.model_.opened(), self.model_.predictor()
        shape = opened.description.input_shape
        pixels = np.stack([to_pixels(each, shape) for each in self._pictures(rows)])
        images = torch.from_numpy(pixels).to(opened.method.device)
        if task is None:
            names = [name for record in predictor.records for name in record.classes]
            found = predictor.log_probabilities(images).exp()
        else:
            name = opened.task(task).name
            names = list(predictor.records[predictor.tasks.index(name)].classes)
            found = torch.softmax(predictor.predict(images, name).outputs[0].scores, 1)
        columns = np.searchsorted(self.classes_, [self._labels[name] for name in names])
        summed: NDArray[np.float64] = np.zeros((len(rows), len(self.classes_)))
        np.add.at(summed.T, columns, found.cpu().double().numpy().T)
        return summed

    # Tasks -------------------------------------------------------------------------------------

    @property
    def tasks_(self) -> list[str]:
        """The names of the tasks in the order in which they were learned."""
        check_is_fitted(self)
        return [task.name for task in self.model_.tasks]

    def tickets(self) -> dict[str, Ticket]:
        """The small network of each task, an ordinary `nn.Module`."""
        return {name: self.model_.ticket(name) for name in self.tasks_}

    def export(
        self, task: str, out: str | PathLike[str], to: str | None = None, **options: Any
    ) -> Exported:
        """Write the ticket of a task as a file for a runtime, as `Model.export`."""
        check_is_fitted(self)
        with self._refusals():
            return self.model_.export(task, out, to, **options)

    # scikit-learn ------------------------------------------------------------------------------

    def _read_both(
        self, X: ArrayLike, y: ArrayLike, first: bool  # noqa: N803
    ) -> tuple[NDArray[Any], tuple[int, ...] | None, Labels]:  # fmt: skip
        flat, shape = unrolled(X)
        rows, labels = validate_data(self, flat, y, reset=first, **READ)
        check_classification_targets(labels)
        return rows, shape, labels

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        folder = state.pop("_folder", None)
        if folder is not None:
            del state["model_"]
            state["files"] = read_files(Path(folder.name) / "model")
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("files", None)
        super().__setstate__(state)
        if files is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="rivals-")
            self.model_ = Model(Path(self._folder.name) / "model", device=self.device)
            write_files(self.model_.path, files)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """What rivals refuses is a ValueError to scikit-learn."""
        try:
            yield
        except RowsError:
            raise
        except RivalsError as error:
            raise RowsError(*error.args) from error


READ: dict[str, Any] = {"dtype": "numeric"}  # how scikit-learn checks the rows


def unrolled(values: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Pictures (n, …) as flat rows, and the shape of one; what is two-dimensional stays."""
    array = values if hasattr(values, "ndim") else np.asarray(values)
    if array.ndim < 3:
        return values, None
    array = np.asarray(array)
    return array.reshape(len(array), -1), array.shape[1:]


def check_all_there(labels: Labels, classes: ArrayLike) -> None:
    """Refuse a task that is to be learned without some of its classes."""
    apart = set(np.unique(np.asarray(classes)).tolist()) ^ set(np.unique(labels).tolist())
    if apart:
        raise RowsError(
            f"classes and y differ by {', '.join(map(repr, list(apart)[:5]))}, but a task is "
            "learned with all its classes; give pictures of each of them."
        )


def label_names(labels: Labels, known: Mapping[str, Any]) -> dict[str, Any]:
    """The classes of a model for these labels: text by which each label is found again."""
    found = {named(str(label), "class"): label for label in np.unique(labels).tolist()}
    if len(found) < len(np.unique(labels)):
        raise RowsError("Two labels are the same text; rename one of them.")
    for text, label in found.items():
        if text in known and known[text] != label:
            raise RowsError(
                f"The label {label!r} is of type {type(label).__name__}, but {known[text]!r} was "
                f"learned as {type(known[text]).__name__}; use one type for all tasks."
            )
    return found


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a model's folder, by their path in it; not its lock and its spare space."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put the files back where they were."""
    for name, data in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
