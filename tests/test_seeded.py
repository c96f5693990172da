"""Untrained weights are a function of the seed and of the edge alone."""

import torch
from scipy import stats

from rivals.layers.seeded import standard_normal
from rivals.layers.shared import SharedWeight


def test_any_slice_equals_the_part_of_the_whole():
    whole = standard_normal(7, torch.arange(20), torch.arange(15), 9)
    rows, columns = torch.tensor([3, 17, 4]), torch.tensor([14, 0])
    part = standard_normal(7, rows, columns, 9)
    assert torch.equal(part, whole[rows][:, columns])


def test_weights_are_standard_normal_and_uncorrelated():
    values = standard_normal(1, torch.arange(200), torch.arange(100), 4)
    assert stats.kstest(values.flatten()[:50_000].numpy(), "norm").pvalue > 1e-3
    table = values.flatten(1).T  # rows as variables
    assert torch.corrcoef(values.flatten(1)[:50]).fill_diagonal_(0).abs().max() < 0.25
    assert abs(float((table[:-1] * table[1:]).mean())) < 0.02


def test_another_seed_gives_other_weights():
    rows, columns = torch.arange(4), torch.arange(4)
    assert not torch.equal(
        standard_normal(1, rows, columns, 1), standard_normal(2, rows, columns, 1)
    )


def test_growth_keeps_every_old_edge():
    weight = SharedWeight(6, 4, 3, std=0.5, seed=3)
    weight.write(torch.tensor([1, 2]), torch.tensor([0, 3]), torch.ones(2, 2, 3))
    before = weight.values.clone()
    weight.resize(9, 8)
    assert torch.equal(weight.values[:6, :4], before)
    fresh = SharedWeight(9, 8, 3, std=0.5, seed=3)
    assert torch.equal(weight.values[6:], fresh.values[6:])
    assert torch.equal(weight.values[:6, 4:], fresh.values[:6, 4:])


def test_release_gives_edges_without_users_their_untrained_values():
    weight = SharedWeight(4, 4, 1, std=1.0, seed=0)
    untrained = weight.values.clone()
    rows, columns = torch.tensor([0, 1]), torch.tensor([2, 3])
    weight.write(rows, columns, torch.full((2, 2, 1), 9.0))
    assert weight.claim(rows, columns).all()
    also = torch.tensor([1]), torch.tensor([3])
    assert not weight.claim(*also).any()
    weight.release(rows, columns)
    assert weight.values[1, 3] == 9
    weight.release(*also)
    assert torch.equal(weight.values, untrained)
