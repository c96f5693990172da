"""Avalanche: its benchmarks as streams, and TWTA among its strategies, on the bundled digits."""

from __future__ import annotations

import doctest
import io
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from rivals.errors import RivalsError
from teaching import digits

pytest.importorskip(
    "rivals.avalanche", reason="Avalanche is not installed: rivals[avalanche]", exc_type=RivalsError
)

import rivals
from rivals.avalanche import TWTAStrategy, experiences, strategy, stream_from

from avalanche.benchmarks import (  # isort: skip
    benchmark_from_datasets, class_incremental_benchmark, task_incremental_benchmark,
)  # fmt: skip
from avalanche.benchmarks.utils import as_classification_dataset  # isort: skip
from avalanche.benchmarks.utils.transform_groups import TransformGroups  # isort: skip
from avalanche.evaluation.metrics import (  # isort: skip
    accuracy_metrics, forgetting_metrics, loss_metrics,
)  # fmt: skip
from avalanche.logging import TextLogger  # isort: skip
from avalanche.training.plugins import EvaluationPlugin, EWCPlugin  # isort: skip

SETTINGS = {"epochs": 3, "architecture": "mlp", "widths": (32, 32), "units": 2}


def dataset(first: int, last: int, transform: Any = None) -> Any:
    """Some of the digits 0 to 5, as Avalanche holds them."""
    found = np.flatnonzero(digits().target < 6)[first:last]
    images = torch.tensor(digits().images[found] / 16, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits().target[found])
    data = TensorDataset(images, labels)
    data.targets = labels.tolist()  # type: ignore[attr-defined]
    groups = TransformGroups({"train": (transform, None), "eval": (transform, None)})
    return as_classification_dataset(data, groups if transform else None)


def normalised(image: torch.Tensor) -> torch.Tensor:
    return (image - 0.3) / 0.1


def split(transform: Any = None) -> Any:
    """Three experiences of two classes."""
    sets = {"train": dataset(0, 500, transform), "test": dataset(500, 900, transform)}
    return class_incremental_benchmark(sets, num_experiences=3, class_order=[4, 1, 0, 3, 2, 5])


@pytest.fixture(scope="module")
def results() -> Any:
    """What rivals itself finds on that split."""
    return rivals.run(stream_from(split()), settings=SETTINGS)


def metrics(logger: Any = None) -> EvaluationPlugin:
    return EvaluationPlugin(
        accuracy_metrics(epoch=True, experience=True, stream=True), loss_metrics(experience=True),
        forgetting_metrics(experience=True, stream=True),
        loggers=[logger or TextLogger(io.StringIO())],
    )  # fmt: skip


def learned(benchmark: Any, logger: Any = None, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """A strategy that has learned all experiences, and what it found after each."""
    trained, found = TWTAStrategy(settings=SETTINGS, evaluator=metrics(logger), **options), []
    for experience in benchmark.train_stream:
        trained.train(experience)
        found.append(trained.eval(benchmark.test_stream))
    return trained, found


def accuracies(found: dict[str, Any]) -> list[float]:
    """Percent right in each experience of the test stream."""
    kept = {k: v for k, v in found.items() if k.startswith("Top1_Acc_Exp/eval_phase/test_stream")}
    return [100 * kept[name] for name in sorted(kept, key=lambda name: name[-6:])]


# A benchmark as a stream --------------------------------------------------------------------------


def test_experiences_are_tasks() -> None:
    stream = stream_from(split())
    assert [item.task.name for item in stream] == [f"experience-{k}" for k in range(3)]
    assert [item.task.classes for item in stream] == [("1", "4"), ("0", "3"), ("2", "5")]
    assert stream.input_shape == (1, 8, 8)
    sizes = [len(i.task.train) + len(i.task.validation) for i in stream]
    assert (sum(sizes), sum(len(item.test) for item in stream)) == (500, 400)


def test_transforms_that_normalise_are_left_out() -> None:
    """Pictures are as they are stored, and the benchmark stays as it was."""
    benchmark = split(normalised)
    assert stream_from(benchmark).fingerprint == stream_from(split()).fingerprint
    assert benchmark.train_stream[0].dataset[0][0].min() == pytest.approx(-3.0)


def test_one_test_set_for_all_experiences_is_divided_by_classes() -> None:
    several = split()
    train = [each.dataset for each in several.train_stream]
    benchmark = benchmark_from_datasets(train=train, test=[dataset(500, 900)])
    sizes = [len(item.test) for item in stream_from(benchmark)]
    assert sizes == [len(item.test) for item in stream_from(several)]


def test_streams_that_do_not_fit_are_refused() -> None:
    train = [each.dataset for each in split().train_stream]
    with pytest.raises(RivalsError, match="3 experiences to train on and 2 to test"):
        stream_from(benchmark_from_datasets(train=train, test=train[:2]))
    with pytest.raises(RivalsError, match="a test stream was expected"):
        stream_from(benchmark_from_datasets(train=train))
    data = TensorDataset(torch.randn(20, 1, 8, 8), torch.arange(20) % 2)
    data.targets = data.tensors[1].tolist()  # type: ignore[attr-defined]
    one = [as_classification_dataset(data)]
    stream = stream_from(benchmark_from_datasets(train=one, test=one))
    with pytest.raises(RivalsError, match="floats must lie between 0 and 1"):
        stream[0]


# TWTA as a strategy -------------------------------------------------------------------------------


def test_task_labels_make_the_task_known(results: Any) -> None:
    """The same seed learns, and finds, what `rivals.run` does; nothing is forgotten."""
    printed = io.StringIO()
    trained, found = learned(task_incremental_benchmark(split()), TextLogger(printed))
    assert accuracies(found[-1]) == pytest.approx(results.matrix[-1])
    assert found[-1]["StreamForgetting/eval_phase/test_stream"] == 0
    assert found[-1]["Top1_Acc_Epoch/train_phase/train_stream/Task002"] > 0.8
    assert printed.getvalue().count("Epoch 2 ended") == 3
    assert trained.clock.train_iterations == sum(
        -(-len(item.task.train) // 40) * 3 for item in stream_from(split())
    )
    ticket = trained.ticket(1)
    assert ticket.classes == ("0", "3")
    item = stream_from(split())[1]
    right = (ticket(item.test.images).argmax(1) == item.test.labels).float().mean()
    assert 100 * float(right) == pytest.approx(results.matrix[-1][1])


def test_without_task_labels_all_classes_compete(results: Any) -> None:
    trained, found = learned(split(normalised))
    each = accuracies(found[-1])
    assert np.mean(each) < np.mean(results.matrix[-1])
    assert np.mean(each) > 60
    assert accuracies(found[0])[1:] == [0.0, 0.0]  # classes that were not learned yet
    stream = stream_from(split())
    for item, accuracy in zip(stream, each, strict=True):
        named = trained.method.predict(item.test.images, None)
        place = [trained.method.known[name].classes for name in named.tasks]
        words = [
            place[t][c] for t, c in zip(named.task.tolist(), named.label.tolist(), strict=True)
        ]
        truth = [item.task.classes[label] for label in item.test.labels.tolist()]
        right = np.mean([word == true for word, true in zip(words, truth, strict=True)])
        assert 100 * right == pytest.approx(accuracy)


def test_an_ancestor_sees_the_pictures_as_it_learned_them() -> None:
    benchmark = task_incremental_benchmark(split())
    trained = TWTAStrategy(settings={"ancestor": "tiny", "epochs": 1}, evaluator=metrics())
    trained.train(benchmark.train_stream[0])
    found = trained.eval([benchmark.test_stream[0]])
    assert accuracies(found)[0] > 80


def test_a_plugin_may_stop_the_training_and_evaluate_within() -> None:
    from avalanche.core import SupervisedPlugin

    class StopSoon(SupervisedPlugin):  # type: ignore[misc]
        def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
            if strategy.clock.train_exp_iterations == 3:
                strategy.stop_training()

    trained = TWTAStrategy(
        settings=SETTINGS, evaluator=metrics(), plugins=[StopSoon()], eval_every=1
    )
    benchmark = split()
    trained.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream])
    assert trained.method.position.step < 9
    assert trained.done() == ["experience-0"]


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(RivalsError, match=r"EWCPlugin changes the training \(before_backward\)"):
        TWTAStrategy(plugins=[EWCPlugin(1.0)])
    benchmark = split()
    trained = TWTAStrategy(settings={**SETTINGS, "epochs": 1}, evaluator=None)
    with pytest.raises(RivalsError, match="no ticket of experience 0; learn it first"):
        trained.ticket(0)
    trained.train(benchmark.train_stream[0])
    with pytest.raises(RivalsError, match="'experience-0' was learned before"):
        trained.train(benchmark.train_stream[0])


@pytest.mark.parametrize("module", [experiences, strategy])
@pytest.mark.filterwarnings("ignore:No loggers specified")
def test_the_examples_run(module: Any) -> None:
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 5) == (0, True)
