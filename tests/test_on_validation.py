"""Settings are chosen without a look at test images."""

from dataclasses import replace

import pytest
import torch

import rivals
from rivals.errors import RivalsError
from rivals.experiment.result_file import read_results
from rivals.seeds import Seed
from rivals.streams.on_validation import OnValidation
from rivals.streams.stream import streams


def test_validation_examples_stand_in_for_the_test():
    benchmark = streams["digits"]
    stream = benchmark.build(benchmark.settings(), Seed(0))
    seen, real = OnValidation(stream)[0], stream[0]
    assert torch.equal(seen.test.images, real.task.validation.images)
    assert torch.equal(seen.task.train.images, real.task.train.images)
    assert OnValidation(stream).name == stream.name


class AllToLearnFrom(OnValidation):
    """A stream that holds no validation images out."""

    def __getitem__(self, index):
        item = self.stream[index]
        task = replace(item.task, validation=item.task.validation.subset(torch.empty(0).long()))
        return replace(item, task=task)


def test_without_validation_images_there_is_nothing_to_measure_on(tmp_path):
    benchmark = streams["digits"]
    stream = AllToLearnFrom(benchmark.build(benchmark.settings(), Seed(0)))
    with pytest.raises(RivalsError, match=r"no validation images; .* validation_share=0\.05"):
        OnValidation(stream)[0]
    rivals.run(stream, out=tmp_path / "run", settings={"epochs": 1, "architecture": "mlp"})
    content = read_results(tmp_path / "run" / "results.json")
    assert content["tasks"][0]["validation_accuracy"] is None
    assert content["summary"]["accuracy"]["validation"] is None
