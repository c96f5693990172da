"""What a stream leaves out is told wherever its results are."""

import torch

from rivals.seeds import Seed
from rivals.streams.splits import Parts, SplitSettings, restrict


def test_limits_are_part_of_the_subset_sentence():
    assert SplitSettings().describe_subset("", 20) == ""
    assert (
        SplitSettings().describe_subset("150 of 500 images a class", 20)
        == "150 of 500 images a class"
    )
    assert SplitSettings(tasks=20).describe_subset("", 20) == ""
    told = SplitSettings(tasks=5, per_class=200, test_per_class=50).describe_subset("A part", 20)
    assert told == (
        "A part; at most 200 training images a class used; at most 50 test images a class used; "
        "5 of 20 tasks"
    )


def test_limits_leave_an_empty_part_empty():
    """As with the paper's 9:1 split, which holds no validation images out."""
    labels, nothing = torch.arange(30) % 3, torch.empty(0).long()
    parts = Parts(torch.arange(24), nothing, torch.arange(24, 30))
    settings = SplitSettings(per_class=5, test_per_class=1, validation_share=0.0)
    found = restrict(parts, labels, settings, Seed(0))
    assert [len(part) for part in (found.train, found.validation, found.test)] == [15, 0, 3]
