"""Settings are chosen without a look at test images."""

import torch

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
