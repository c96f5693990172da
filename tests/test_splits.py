"""What a stream leaves out is told wherever its results are."""

from rivals.streams.splits import SplitSettings


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
