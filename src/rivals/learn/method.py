"""The contract of a method. A method overrides only what it changes.

    start: begin_task ─► Trainer: epochs × (before_step, step) ─► finish: end_task
                         step: loss → backward → adjust_gradients → update → after_step
    predict and state at any time

A method sees one task at a time, never test data, and never asks how many tasks will come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx

from rivals.errors import RivalsError
from rivals.learn.state import State, StatePart, pack_records, unpack_records
from rivals.learn.training_settings import TrainingSettings
from rivals.naming.familiarity import few
from rivals.naming.predictor import Predictor
from rivals.naming.rule import Rule
from rivals.naming.rules import find_rule
from rivals.naming.task_record import Prediction, TaskRecord, learned_tasks
from rivals.nn.device import find_device
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.task_state import TaskColumn, TaskTable
from rivals.registry import Registry
from rivals.seeds import Seed
from rivals.streams.stream import Stream
from rivals.streams.task import Batch, Task
from rivals.tickets.flop_counter import FlopCounter
from rivals.tickets.parallel import AnyTicket, ParallelTickets, TicketOutput

if TYPE_CHECKING:
    from typing_extensions import Self  # typing has it from Python 3.11 on


@dataclass
class Position:
    """Where learning stands: everything the loop needs to go on after a stop."""

    epoch: int = 0
    batch: int = 0
    step: int = 0  # of the task
    steps: int = 0  # planned for the task

    @property
    def progress(self) -> float:
        """0 at the first step of a task, 1 at its last."""
        return self.step / max(1, self.steps - 1)


@dataclass(frozen=True)
class StepResult:
    """What callbacks are told of a step."""

    loss: float
    correct: int
    seen: int


class Method(ABC):
    """Learns tasks one after the other.

    A method of your own is a subclass (docs/your-own-method.md), usually of an existing method.

    >>> import rivals
    >>> stream = rivals.Stream.from_benchmark("digits")
    >>> network = {"architecture": "mlp", "widths": (16, 16), "units": 4}
    >>> method = rivals.methods["twta"].for_stream(stream, network=network, epochs=2)
    >>> task, test = stream[0].task, stream[0].test
    >>> rivals.Trainer(method).fit(task)
    'planned'
    >>> list(method.known)
    ['0-1']
    >>> method.predict(test.images[:5], task.name).label.shape
    torch.Size([5])
    """

    settings: TrainingSettings
    settings_class: type[TrainingSettings] = TrainingSettings

    def __init__(self, plan: NetworkPlan, settings: Any, seed: Seed) -> None:
        self.plan, self.settings, self.seed = plan, settings, seed
        self.device = plan.device
        self.tasks = TaskTable()  # all that belongs to tasks; networks keep theirs here, too
        self.known: TaskColumn[TaskRecord] = self.tasks.column("record")
        self.position = Position()
        self.flops: dict[str, float] = {}  # of one step of the present task, by its kind
        self.spent = 0.0  # FLOPs of the present task
        self.statistics_images: int | None = None  # that naming statistics are taken from, at most
        self._predictor: Predictor | None = None  # until something is learned

    @classmethod
    def for_stream(
        cls,
        stream: Stream,
        *,
        network: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "cpu",
        **settings: Any,
    ) -> Self:
        """A method that is ready for the tasks of `stream`, to be trained with a `Trainer`.

        Args:
            stream: Only the shape of its pictures is looked at.
            network: Settings of the network: `architecture`, `widths`, `units` and so on.
            seed: Of everything that is drawn.
            device: cpu, cuda, mps or auto.
            settings: Of the method; its recipes are not asked.
        """
        chosen = cls.settings_class(**settings)
        shape = cls.view_of(stream, chosen).input_shape
        plan = NetworkPlan(NetworkSettings(**(network or {})), shape, find_device(device))
        return cls(plan, chosen, Seed(seed).child("method"))

    @classmethod
    def recipe_sections(cls) -> list[str]:
        """The sections of a recipe that this method reads, the more special ones last."""
        names = [methods.name_of(each) for each in reversed(cls.__mro__)]
        return [name for name in names if name]

    # What a method overrides -------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        """Make room for `task`: head, norms, optimiser, buffers."""

    @classmethod
    def view_of(cls, stream: Stream, settings: TrainingSettings) -> Stream:
        """The stream as the method looks at it; most look at it as it is."""
        return stream

    def training_view(self, task: Task) -> Task:
        """The task as steps and checks read it: where a part of the network never changes, what
        that part makes of the images, computed once."""
        return task

    def training_set(self, task: Task) -> Sequence[Task]:
        """The tasks whose training sets make an epoch; asked before each."""
        return [task]

    def planned_epochs(self) -> int:
        """How many epochs the present task takes, before `begin_task` and after it the same."""
        return self.settings.epochs

    def before_step(self, batch: Batch) -> None:
        """Change phase, redraw masks: what is not part of a step's cost."""

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss to descend, and the scores (n, classes of the task)."""
        scores = self.train_logits(batch)
        return F.cross_entropy(scores, batch.labels), scores

    def train_logits(self, batch: Batch) -> Tensor:
        """Scores with gradients, in training mode."""
        raise NotImplementedError

    def adjust_gradients(self, batch: Batch) -> None:
        """Edit gradients between backward and update."""

    @abstractmethod
    def update(self) -> None:
        """Move the weights along the gradients, and forget the gradients."""

    def after_step(self, batch: Batch) -> None:
        """Put back what must not move, renew buffers, redraw masks."""

    def end_epoch(self, task: Task) -> None:
        """After the last step of an epoch."""

    def end_task(self, task: Task) -> None:
        """After the last epoch: winners, bases, exemplars, statistics."""

    def begin_refining(self, task: Task) -> None:
        """Open a learned task again, to train it further on new data."""
        raise RivalsError(f"{type(self).__name__} cannot train the task '{task.name}' further.")

    def end_refining(self, task: Task) -> None:
        """Close a task that was opened by `begin_refining`."""

    @abstractmethod
    def logits(self, images: Tensor, task: str) -> Tensor:
        """Scores of the task's classes for preprocessed images, at inference."""

    @abstractmethod
    def ticket(self, task: str) -> fx.GraphModule:
        """A plain network for one task, to ship."""

    def working_tensors(self) -> list[Tensor]:
        """What training of the present task changes, so that its best state can be kept."""
        return []

    @property
    def settled(self) -> bool:
        """Whether the present task can be evaluated: `logits` then uses its weights as they are."""
        return True

    @abstractmethod
    def footprint(self) -> dict[str, int]:
        """Bytes needed to continue training, by kind."""

    @abstractmethod
    def state(self) -> State:
        """Everything there is to save, at any step; `load` takes it back."""

    @abstractmethod
    def load(self, state: State) -> None: ...

    @abstractmethod
    def full_weights(self) -> int:
        """Weights of the network that tickets are cut from, with a head of full width."""

    @property
    def nominal_share(self) -> float:
        """The share of weights a ticket keeps, as the paper counts: one unit of a block, 1 / J."""
        return 1.0

    def retained(self, task: str) -> int | None:
        """Weights of a ticket that are not zero, where masks make zeros; None: all of them."""
        return None

    def winners(self, task: str) -> list[Tensor]:
        """The units that won `task`, (blocks,) for each set of rivals; empty without rivals."""
        return []

    def task_facts(self, task: str) -> dict[str, Any]:
        """What the results say of a task beyond its accuracy."""
        return {}

    def step_facts(self) -> dict[str, float]:
        """What logs say of the last step beyond its loss and accuracy: `lr`, where there is one."""
        return {}

    @property
    def phase(self) -> str:
        """A name for steps of equal cost, so that one of them is measured for all."""
        return "train"

    @property
    def one_classifier(self) -> bool:
        """Whether the classes of all tasks compete in `predict`, so that no rule names a task."""
        return False

    @property
    def pretrained(self) -> dict[str, str]:
        """Name and checksum of the network that the method starts from; nothing without one.

        Results say it, so that nobody takes such a method for one that starts from random weights.
        """
        return {}

    # What all methods share --------------------------------------------------------------------

    def step(self, batch: Batch) -> StepResult:
        """One update on one batch."""
        loss, scores = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.adjust_gradients(batch)
        self.update()
        self.after_step(batch)
        correct = int((scores.detach().argmax(1) == batch.labels).sum())
        return StepResult(loss.item(), correct, len(batch.labels))

    def start(self, task: Task) -> None:
        """Remember the task, plan its steps, and let the method make room for it."""
        self.check_new(task)
        portions = self.training_set(task)
        per_epoch = sum(self.settings.batching.count(portion) for portion in portions)
        self.position = Position(steps=per_epoch * self.planned_epochs())
        self.flops, self.spent = {}, 0.0
        self.begin_task(task)
        self.known[task.name] = TaskRecord(task.classes, task.preprocessing)

    def check_new(self, task: Task) -> None:
        if task.name in self.known:
            raise RivalsError(f"The task '{task.name}' was learned before; give it another name.")

    def finish(self, task: Task) -> None:
        """Let the method close the task, and keep what it takes to name it later."""
        self.end_task(task)
        self.keep(task)

    @torch.no_grad()
    def keep(self, task: Task) -> None:
        """Compute once, from its training and validation data, how `task` is recognised."""

        rule = self.naming_rule()

        def read(images: Tensor) -> TicketOutput:
            images = images.to(self.device)
            ticket = rule.features or self.ticket(task.name)
            return ParallelTickets([ticket], [task.preprocessing])(images)[0]

        task = self.training_view(task)
        if self.statistics_images is not None:
            task = few(task, self.statistics_images)
        kept: Mapping[str, Tensor] = {}
        if not self.one_classifier:
            kept = rule.keep(task, read, self.settings.naming.images_per_class)
        self.known[task.name] = self.known[task.name].with_kept(kept)
        self._predictor = None

    def counted_step(self, batch: Batch) -> StepResult:
        """A step and its FLOPs: the first of its kind is counted, the others charged the same."""
        self._predictor = None
        kind = f"{self.phase} × {len(batch.labels)} of {batch.task}"
        if kind in self.flops:
            result = self.step(batch)
        else:
            with FlopCounter() as counter:
                result = self.step(batch)
            self.flops[kind] = float(counter.total)
        self.spent += self.flops[kind]
        return result

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Work outside of steps goes on the task's account, too."""
        with FlopCounter() as counter:
            yield
        self.spent += float(counter.total)

    @torch.no_grad()
    def predict(self, images: Tensor, task: str | None) -> Prediction:
        """Classes of raw `images`; without a task, `infer` names one that was learned."""
        images = images.to(self.device)
        if task is None:
            return self.predictor().predict(images)
        scores = self.logits(self.known[task].preprocessing(images), task)
        best = torch.softmax(scores, 1).max(1)
        return Prediction((task,), torch.zeros_like(best.indices), best.indices, best.values)

    def predictor(self) -> Predictor:
        """The tickets of all tasks that were learned to their end, ready to answer together."""
        if self.one_classifier:
            raise RivalsError(
                "This method compares the classes of all tasks at once, which tickets that run "
                "together do not; export one task with --task."
            )
        tasks = learned_tasks(self.known)
        if self._predictor is None or self._predictor.tasks != tasks:
            tickets, records = [self.answering(t) for t in tasks], [self.known[t] for t in tasks]
            familiarity = self.tasks.column("familiarity")
            self._predictor = Predictor(
                tasks, tickets, records, self.naming_rule(),
                [familiarity[t] for t in tasks if t in familiarity],
            )  # fmt: skip
        return self._predictor

    def naming_rule(self) -> Rule:
        """What names the task of an image."""
        return find_rule(self.settings.naming.rule, self.plan.input_shape[0], self.device)

    def answering(self, task: str) -> AnyTicket:
        """The ticket of `task`, in the form that runs fastest beside others."""
        return self.ticket(task)

    def kept_bytes(self) -> int:
        """What naming the tasks takes; part of every footprint."""
        return sum(tensor.nbytes for k in self.known.values() for tensor in (k.kept or {}).values())

    def common_part(self) -> StatePart:
        """What every method saves beside its own: tasks, position, account."""
        part = pack_records(self.known)
        part.facts |= {"position": vars(self.position), "flops": self.flops, "spent": self.spent}
        return part

    def load_common(self, part: StatePart) -> None:
        self._predictor = None
        for name, record in unpack_records(part).items():
            self.known[name] = record.to(self.device)
        self.position = Position(**part.facts["position"])
        self.flops, self.spent = dict(part.facts["flops"]), part.facts["spent"]


class MethodRegistry(Registry[type[Method]]):
    """Methods by name; also `module:name` for a method of your own.

    >>> import rivals
    >>> issubclass(rivals.methods["finetune"], rivals.Method)
    True
    """

    def __getitem__(self, name: str) -> type[Method]:
        found: object = super().__getitem__(name)
        if not (isinstance(found, type) and issubclass(found, Method)):
            raise RivalsError(
                f"The method '{name}' is of type {type(found).__name__}, but a subclass of "
                "rivals.Method was expected."
            )
        return found

    def named(self, method: str | type[Method]) -> str:
        """The name of a method; a class that has none is found under `module:name` from now on."""
        if isinstance(method, str):
            return method
        if not (isinstance(method, type) and issubclass(method, Method)):
            raise RivalsError(
                f"The method is of type {type(method).__name__}, but a name or a subclass of "
                "rivals.Method was expected."
            )
        name = self.name_of(method)
        if name is None:
            name = f"{method.__module__}:{method.__qualname__}"
            self.register(name)(method)
        return name


methods = MethodRegistry(
    "method",
    {
        "chain": "rivals.baselines.controls",
        "der": "rivals.baselines.der",
        "er": "rivals.baselines.er",
        "fecam": "rivals.baselines.fecam",
        "finetune": "rivals.baselines.controls",
        "fsdgpm": "rivals.baselines.fsdgpm",
        "gem": "rivals.baselines.gem",
        "gpm": "rivals.baselines.gpm",
        "icarl": "rivals.baselines.icarl",
        "il2m": "rivals.baselines.il2m",
        "independent": "rivals.baselines.controls",
        "joint": "rivals.baselines.controls",
        "lamaml": "rivals.baselines.lamaml",
        "llt": "rivals.baselines.llt",
        "ncm": "rivals.baselines.ncm",
        "random-ticket": "rivals.baselines.random_ticket",
        "ranpac": "rivals.baselines.ranpac",
        "slda": "rivals.baselines.slda",
        "softnet": "rivals.baselines.softnet",
        "sparcl": "rivals.baselines.sparcl",
        "twta": "rivals.learn.twta",
        "wsn": "rivals.baselines.wsn",
    },
)
