"""Metrics on a matrix worked out by hand."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from rivals.experiment import matrix
from rivals.experiment.calibration import expected_error
from rivals.nn.network_plan import networks
from rivals.streams.task import Examples, Task, centred
from rivals.tickets.cost import cost, multiplications
from rivals.tickets.flop_counter import FlopCounter
from rivals.tickets.overlap import consecutive_overlap, overlap, overlap_by_chance, overlaps
from toys import make, teach

WORKED = [[90.0], [80.0, 70.0], [60.0, 50.0, 40.0]]


def test_the_worked_matrix():
    assert matrix.accuracy(WORKED) == 50
    assert matrix.bwt(WORKED) == -25
    assert matrix.bti(WORKED) == 25
    assert matrix.forgetting(WORKED) == 25
    assert matrix.learning_accuracy(WORKED) == pytest.approx(66.67, abs=0.01)


def test_forgetting_counts_from_the_best_ever():
    rows = [[50.0], [90.0, 70.0], [60.0, 50.0, 40.0]]
    assert matrix.forgetting(rows) == pytest.approx((30 + 20) / 2)
    assert matrix.bti(rows) == pytest.approx((-10 + 20) / 2)


def test_one_task_forgets_nothing():
    assert matrix.bti([[80.0]]) == 0
    assert str(matrix.bti([[80.0], [80.0, 70.0]])) == "0.0"  # never "-0.0"


def test_overlap_is_the_share_of_blocks_with_one_winner():
    one = [torch.tensor([0, 1, 2]), torch.tensor([3])]
    other = [torch.tensor([0, 2, 2]), torch.tensor([0])]
    assert overlap(one, other) == 50
    assert consecutive_overlap([one, other, other]) == 75
    assert consecutive_overlap([one]) is None
    assert overlaps([one, other, other]) == [[100, 50, 50], [50, 100, 100], [50, 100, 100]]
    assert overlaps([]) == []


def test_cost_of_a_plain_network():
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 16, 5))
    found = cost(network, (3, 4, 4))
    assert found.weights == 8 * 27 + 8 + 5 * 128 + 5
    assert found.macs == 8 * 27 * 16 + 128 * 5
    assert 4 * found.weights < found.bytes < 4 * found.weights + 1000


@pytest.mark.parametrize(
    ("method", "architecture"),
    [("twta", name) for name in networks] + [(name, "mlp") for name in ("fecam", "softnet", "er")],
)
def test_multiplications_are_those_that_torch_counts(method, architecture):
    shape = (3, 32, 32)
    learner = make(method, {"architecture": architecture}, shape=shape, epochs=1)
    images = torch.randint(0, 256, (8, *shape), dtype=torch.uint8)
    some = Examples(images, torch.arange(8) % 2)
    teach(learner, Task("toy", ("a", "b"), some, some, centred(3)))
    ticket = learner.ticket("toy")
    with FlopCounterMode(display=False) as counter:
        ticket(torch.zeros(1, *shape))
    assert multiplications(ticket, shape) == counter.get_total_flops() // 2 > 0
    pixels = torch.randn(2, *shape, requires_grad=True)
    counters = FlopCounterMode(display=False), FlopCounter()
    for counter in counters:
        with counter:
            ticket(pixels).sum().backward()  # as in training
    assert counters[0].get_total_flops() == counters[1].total > 2 * multiplications(ticket, shape)


def test_chance_follows_the_number_of_rivals_as_a_network_grows():
    winners = [[torch.zeros(4), torch.zeros(2)]] * 3
    assert overlap_by_chance(winners, [[8, 8]] * 3) == pytest.approx(12.5)
    grown = overlap_by_chance(winners, [[8, 8], [8, 8], [16, 8]])
    second = 100 * (4 / 16 + 2 / 8) / 6
    assert grown == pytest.approx((12.5 + second) / 2)


def test_calibration_error_by_hand():
    confidence = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.25, 0.25])
    right = torch.tensor([True, True, True, False, False, True])
    expected = (4 * abs(0.9 - 0.75) + 2 * abs(0.25 - 0.5)) / 6
    assert expected_error(confidence, right, bins=10) == pytest.approx(expected)
    assert expected_error(confidence, right, bins=1) == pytest.approx(abs(4.1 - 4) / 6)


def test_calibration_of_the_sure_the_unsure_and_none():
    everything = torch.ones(5)
    assert expected_error(everything, everything.bool()) == 0
    assert expected_error(everything, ~everything.bool()) == 1
    assert expected_error(torch.zeros(3), torch.zeros(3).bool()) == 0
    assert expected_error(torch.empty(0), torch.empty(0).bool()) == 0
