"""TWTA as a strategy of Avalanche: it learns experiences, and metrics and loggers watch.

    train(experience)   one task in the loop of rivals; plugins are told of its epochs and steps
    eval(stream)        log-probabilities of all classes learned so far, (n, largest label + 1)

Where a benchmark gives task labels, only the classes of the tasks with that label answer: the task
is known. Without them, or where all experiences have the same one, all classes compete.

Plugins that change what is learned (replay, penalties) would do nothing here, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rivals.avalanche.experiences import as_bytes_of, one_task, task_name
from rivals.errors import RivalsError
from rivals.experiment.run_settings import RunSettings, resolve
from rivals.learn.callbacks import Callback
from rivals.learn.method import StepResult
from rivals.learn.trainer import Trainer
from rivals.learn.twta import TWTA
from rivals.nn.device import find_device
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.stream import Stream
from rivals.streams.task import Batch, Examples, Task
from rivals.tickets.ticket import Ticket

from avalanche.core import SupervisedPlugin  # isort: skip - after it was prepared
from avalanche.training.plugins.evaluation import default_evaluator  # isort: skip
from avalanche.training.templates import SupervisedTemplate  # isort: skip

LEAST = -30.0  # log-probability of a class that nothing speaks for
STOPPED = "stopped-by-a-plugin"
CHANGING = (  # what plugins that change the training do, and watching ones do not
    "before_train_dataset_adaptation", "after_train_dataset_adaptation", "before_forward",
    "after_forward", "before_backward", "after_backward", "before_update", "after_update",
)  # fmt: skip


class TWTAStrategy(SupervisedTemplate):  # type: ignore[misc]
    """Learns the experiences of an Avalanche benchmark with TWTA, and forgets none.

    Args:
        settings: Changes by name, as `rivals.run` takes them: epochs, batch_size, lr, architecture,
            widths, units, ancestor …
        seed: All randomness comes from it; the same seed learns the same as `rivals.run`.
        size: Pixels a side, to which all pictures are brought; None: they are of one size.
        validation_share: Share of each class that is held out of training.
        eval_mb_size: Pictures that are answered at once.
        device: cpu, cuda, mps or auto.
        plugins: Plugins that watch.
        evaluator: Metrics and loggers.
        eval_every: As in every strategy. Within an experience, earlier ones are answered.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from rivals.avalanche import TWTAStrategy
    >>> from avalanche.benchmarks import class_incremental_benchmark
    >>> from avalanche.benchmarks.utils import as_classification_dataset
    >>> data = TensorDataset(torch.rand(80, 1, 8, 8), torch.arange(80) % 4)
    >>> data.targets = data.tensors[1].tolist()
    >>> sets = {name: as_classification_dataset(data) for name in ("train", "test")}
    >>> benchmark = class_incremental_benchmark(sets, num_experiences=2)
    >>> settings = {"epochs": 1, "architecture": "mlp", "widths": (16, 16), "units": 4}
    >>> strategy = TWTAStrategy(settings=settings, evaluator=None)
    >>> for experience in benchmark.train_stream:
    ...     found = strategy.train(experience)
    >>> list(strategy.method.known)
    ['experience-0', 'experience-1']
    """

    method: WatchedTWTA  # made for the pictures of the first experience

    def __init__(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        seed: int = 0,
        size: int | None = None,
        validation_share: float = 0.1,
        eval_mb_size: int = 256,
        device: str = "cpu",
        plugins: Sequence[Any] | None = None,
        evaluator: Any = default_evaluator,
        eval_every: int = -1,
    ) -> None:
        check_plugins(plugins or ())
        self.changes, self.seed = dict(settings or {}), seed
        self.size, self.validation_share = size, validation_share
        self.stream: Stream | None = None  # of the first experience; it says how pictures are seen
        self.homes: dict[int, list[str]] = {}  # the tasks of a task label
        self.width = 1  # columns of answers
        super().__init__(
            model=LearnedNetwork(), optimizer=None, train_epochs=1, train_mb_size=1,
            eval_mb_size=eval_mb_size, device=find_device(device), plugins=plugins,
            evaluator=evaluator, eval_every=eval_every,
        )  # fmt: skip

    # Learning ----------------------------------------------------------------------------------

    def _train_exp(self, experience: Any, eval_streams: Any = None, **kwargs: Any) -> None:
        """One experience, in the one training loop."""
        number = experience.current_experience
        stream = one_task(experience.dataset, number, self.size, self.validation_share, self.seed)
        chosen = resolve("avalanche", "twta", "default", self.seed, self.changes, stream=stream)
        stream = TWTA.view_of(stream, chosen.training)
        if self.stream is None:
            self._begin(stream, chosen)
        elif stream.input_shape != self.stream.input_shape:
            raise RivalsError(
                f"The pictures of experience {number} are {stream.input_shape} as (channels, "
                f"height, width), those before {self.stream.input_shape}; give size=, to which all "
                "are brought."
            )
        task = stream[0].task
        self.method.check_new(task)
        found = list(getattr(experience, "task_labels", []))
        for label in found:
            self.homes.setdefault(int(label), []).append(task.name)
        self.width = max(self.width, *(int(name) + 1 for name in task.classes))
        per_epoch = self.method.settings.batching.count(task)
        self.dataloader = range(per_epoch)  # its length is all that loggers ask for
        watching = WatchingPlugins(self, task, int(found[0]) if found else 0)
        self.method.watching = watching
        Trainer(self.method, [watching]).fit(task)

    def _begin(self, stream: Stream, chosen: RunSettings) -> None:
        """Make the network that suits the pictures of the first experience."""
        plan = NetworkPlan(chosen.network, stream.input_shape, self.device)
        training: Any = chosen.training
        self.method = WatchedTWTA(plan, training, Seed(self.seed).child("method"))
        self.model.network, self.stream = self.method.network, stream
        self.train_epochs = chosen.training.epochs
        self.train_mb_size = chosen.training.batch_size

    def make_train_dataloader(self, **kwargs: Any) -> None:
        """The training loop makes its own batches."""

    def make_optimizer(self, **kwargs: Any) -> None:
        """The method has its own optimisers."""

    def check_model_and_optimizer(self, **kwargs: Any) -> None:
        """The network makes room for a task by itself."""

    # Answers -----------------------------------------------------------------------------------

    def eval_dataset_adaptation(self, **kwargs: Any) -> None:
        """Pictures as bytes, as they were learned."""
        dataset = self.experience.dataset
        first = one_task(dataset, 0, self.size, self.validation_share, self.seed)
        self.adapted_dataset = as_bytes_of(dataset, first.input_shape)

    def forward(self) -> Tensor:
        """Log-probabilities (n, classes) for the present batch of bytes."""
        images: Tensor = self.mb_x
        self.width = max(self.width, int(self.mb_y.max()) + 1)
        found = torch.full((len(images), self.width), LEAST, device=self.device)
        if self.stream is None or not self.done():
            return found
        if hasattr(self.stream, "resized"):  # as an ancestor looks at them
            images = self.stream.resized(Examples(images, self.mb_y)).images
        predictor = self.method.predictor()
        logs = predictor.log_probabilities(images)
        classes = [r.classes for r in predictor.records]
        tasks = torch.arange(len(classes)).repeat_interleave(torch.tensor([*map(len, classes)]))
        if hasattr(self.experience, "task_labels"):
            asked = torch.zeros(len(images), len(classes), dtype=torch.bool)
            for image, label in enumerate(self.mb_task_id.tolist()):
                for name in self.homes.get(label, []):
                    if name in predictor.tasks:
                        asked[image, predictor.tasks.index(name)] = True
            logs = logs.masked_fill(~asked[:, tasks].to(logs.device), -torch.inf)
            logs = logs - logs.logsumexp(1, keepdim=True).nan_to_num(neginf=0.0)
        columns = torch.tensor([int(name) for each in classes for name in each])
        summed = torch.zeros_like(found).index_add_(1, columns.to(self.device), logs.exp())
        return summed.log().clamp(min=LEAST)

    def done(self) -> list[str]:
        """The tasks that were learned to their end."""
        return [name for name, record in self.method.known.items() if record.kept is not None]

    def ticket(self, experience: int) -> Ticket:
        """The small network of an experience: an ordinary module, to be saved and exported."""
        name = task_name(experience)
        if self.stream is None or name not in self.done():
            raise RivalsError(f"There is no ticket of experience {experience}; learn it first.")
        record = self.method.known[name]
        return Ticket(
            self.method.ticket(name), name, record.classes, record.preprocessing,
            self.stream.input_shape, [each.tolist() for each in self.method.winners(name)],
        ).cpu()  # fmt: skip


class LearnedNetwork(nn.Module):
    """What Avalanche calls the model of a strategy: the shared network, once there is one."""

    network: nn.Module


class StepWatcher(Protocol):
    """Told of what happens within an epoch."""

    def on_batch(self, batch: Batch) -> None: ...

    def on_scores(self, scores: Tensor) -> None: ...

    def on_epoch_end(self) -> None: ...


class WatchedTWTA(TWTA):
    """TWTA that shows its batches before a step and its scores after it."""

    watching: StepWatcher

    def before_step(self, batch: Batch) -> None:
        self.watching.on_batch(batch)
        super().before_step(batch)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        loss, scores = super().loss(batch)
        self.watching.on_scores(scores.detach())
        return loss, scores

    def end_epoch(self, task: Task) -> None:
        super().end_epoch(task)
        self.watching.on_epoch_end()


class WatchingPlugins(Callback):
    """Tells the plugins of a strategy what its training loop would tell them."""

    def __init__(self, strategy: TWTAStrategy, task: Task, task_label: int) -> None:
        self.strategy, self.task_label = strategy, task_label
        self.labels = torch.tensor([int(name) for name in task.classes], device=strategy.device)
        self.inside = False  # an epoch

    def tell(self, event: str) -> None:
        """Call the hooks of all plugins."""
        call: Callable[[], None] = getattr(self.strategy, f"_{event}")
        call()

    def on_batch(self, batch: Batch) -> None:
        if not self.inside:
            self.inside = True
            self.tell("before_training_epoch")
        truth = self.labels[batch.labels]
        self.strategy.mbatch = [batch.raw, truth, torch.full_like(truth, self.task_label)]
        self.tell("before_training_iteration")

    def on_scores(self, scores: Tensor) -> None:
        wide = scores.new_full((len(scores), self.strategy.width), LEAST)
        wide[:, self.labels] = torch.log_softmax(scores, 1)
        self.strategy.mb_output = wide

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        self.strategy.loss = torch.tensor(result.loss)
        self.tell("after_training_iteration")
        if self.strategy._stop_training:
            self.strategy._stop_training = False
            trainer.end_at(trainer.method.position.step, STOPPED)

    def on_epoch_end(self) -> None:
        self.inside = False
        self.tell("after_training_epoch")

    def on_train_end(self, trainer: Trainer) -> None:
        if self.inside:
            self.on_epoch_end()


def check_plugins(plugins: Sequence[Any]) -> None:
    """Refuse plugins that change what is learned: they would be ignored."""
    for plugin in plugins:
        for name in CHANGING:
            own = getattr(type(plugin), name, None)
            if own is not None and own is not getattr(SupervisedPlugin, name, None):
                raise RivalsError(
                    f"The plugin {type(plugin).__name__} changes the training ({name}), but TWTA "
                    "learns in its own way; leave it out, plugins that watch are welcome."
                )
