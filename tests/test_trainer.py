"""The one training loop and its callbacks."""

from __future__ import annotations

import pytest
import torch

from rivals.errors import Interrupted, RivalsError
from rivals.learn.callbacks import (
    Callback,
    EarlyStopping,
    MemoryLimit,
    OnStep,
    StopOnRequest,
    TimeLimit,
    standard_error,
    validation_accuracy,
)
from rivals.learn.trainer import Trainer
from toys import lessons, make, shortened


class Sabotage(Callback):
    """Ruins all weights in the last step."""

    def on_step(self, trainer, result):
        if trainer.method.position.step == trainer.method.position.steps:
            with torch.no_grad():
                for tensor in trainer.method.working_tensors():
                    tensor.zero_()


class Final(Callback):
    """Validation accuracy before the task is closed."""

    def on_train_end(self, trainer):
        self.accuracy = validation_accuracy(trainer)


@pytest.mark.parametrize("name", ["twta", "finetune", "er", "gpm", "wsn"])
def test_early_stopping_keeps_the_best_weights(name):
    task, final = lessons(1)[0].task, Final()
    stopping = EarlyStopping(every=lambda steps: 3, patience=1000)
    Trainer(make(name, epochs=4), [Sabotage(), stopping, final]).fit(task)
    assert stopping.best > 80
    assert final.accuracy >= stopping.best
    ruined = Final()
    Trainer(make(name, epochs=4), [Sabotage(), ruined]).fit(task)
    assert ruined.accuracy < final.accuracy, "without it the last weights stay"


def test_what_chance_explains_is_not_restored():
    """A check that is one image ahead says nothing; the last weights stay."""
    assert standard_error(50, 100) == pytest.approx(5)
    assert 2 * standard_error(100, 20) > 100 / 20

    class Lucky(EarlyStopping):
        def check(self, trainer):
            super().check(trainer)
            self.best = 100 * (len(trainer.task.validation) - 1) / len(trainer.task.validation)
            self.weights = [torch.zeros_like(t) for t in trainer.method.working_tensors()]

    task, final = lessons(1)[0].task, Final()
    Trainer(make(epochs=4), [Lucky(every=lambda steps: 3, patience=1000), final]).fit(task)
    assert final.accuracy > 80, "the zeros were not restored"


def test_early_stopping_ends_soon_after_the_accuracy_stops_to_rise():
    task = lessons(1)[0].task
    method = make(epochs=40)
    planned = method.settings.epochs * method.settings.batching.count(task)
    stopping = EarlyStopping(every=lambda steps: 3, patience=3, trusted=5)
    assert Trainer(method, [stopping]).fit(task) == "no-longer-better"
    assert method.position.step == method.position.steps < planned
    few = EarlyStopping(every=lambda steps: 3, patience=3, trusted=10_000)
    assert Trainer(make(epochs=10), [few]).fit(task) == "planned", "too few images to trust"


def test_a_limit_of_time_brings_the_end_nearer():
    task = lessons(1)[0].task
    refused = []
    limit = TimeLimit(lambda: 0.05, 5, lambda each, fewest: refused.append(each))
    method = make(epochs=400)
    assert Trainer(method, [limit]).fit(task) == "minutes"
    assert method.position.step < 400
    endless = TimeLimit(lambda: float("inf"), 5, lambda each, fewest: refused.append(each))
    assert Trainer(make(epochs=1), [endless]).fit(task) == "planned"


def test_a_limit_of_memory_is_one_sentence():
    with pytest.raises(RivalsError, match=r"Learning took \d+ MB, but 1 MB are allowed"):
        Trainer(make(epochs=1), [MemoryLimit(1)]).fit(lessons(1)[0].task)


def test_a_request_stops_at_once():
    losses = []
    stop = StopOnRequest(lambda: len(losses) == 2)
    with pytest.raises(Interrupted):
        Trainer(make(epochs=9), [OnStep(lambda r: losses.append(r.loss)), stop]).fit(
            lessons(1)[0].task
        )
    assert len(losses) == 2


def test_callbacks_are_called_in_order():
    calls = []

    class Recorder(Callback):
        def on_task_begin(self, trainer):
            calls.append(("begin", trainer.task.name))

        def on_step(self, trainer, result):
            calls.append(("step", trainer.method.position.step))

        def on_train_end(self, trainer):
            calls.append(("trained", trainer.task.name in trainer.method.network.tasks))

        def on_task_end(self, trainer):
            calls.append(("end", trainer.method.known[trainer.task.name].kept is not None))

    task = shortened(lessons(1)[0].task, 80)
    assert Trainer(make(epochs=1), [Recorder()]).fit(task) == "planned"
    assert calls == [
        ("begin", task.name), ("step", 1), ("step", 2), ("trained", True), ("end", True),
    ]  # fmt: skip


def test_a_loss_that_is_no_number_stops_the_training():
    with pytest.raises(RivalsError, match=r"The loss became (nan|inf) .* lower lr \(now 1e\+30\)"):
        Trainer(make(epochs=3, lr=1e30)).fit(lessons(1)[0].task)
