"""Untrained weights are a function of the seed and the edge; claims lie over them."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from scipy import stats

from rivals.nn.shared_weight import GeneratedWeight, OwnedEdges, StoredWeight
from rivals.nn.untrained import standard_normal


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


KINDS = [StoredWeight, GeneratedWeight]


def everything(weight):
    return weight.read(torch.arange(weight.rows), torch.arange(weight.columns))


@pytest.mark.parametrize("kind", KINDS)
def test_growth_keeps_every_old_edge(kind):
    weight = kind(6, 4, 3, std=0.5, seed=3)  # 3 and 2 blocks of 2 units
    weight.claim("a", torch.tensor([0, 4, 2]), torch.tensor([2, 1]), torch.ones(3, 2, 3))
    before = everything(weight)
    weight.resize(9, 8)
    after, fresh = everything(weight), everything(kind(9, 8, 3, std=0.5, seed=3))
    assert torch.equal(after[:6, :4], before)
    assert torch.equal(after[6:], fresh[6:])
    assert torch.equal(after[:6, 4:], fresh[:6, 4:])


@pytest.mark.parametrize("kind", KINDS)
def test_release_gives_edges_without_users_their_untrained_values(kind):
    weight = kind(4, 4, 1, std=1.0, seed=0)  # 2 blocks of 2 units on both sides
    untrained = everything(weight)
    a, b = (
        (torch.tensor([0, 1]), torch.tensor([2, 1])),
        (torch.tensor([2, 1]), torch.tensor([2, 3])),
    )
    weight.claim("a", *a, torch.full((2, 2, 1), 9.0))
    weight.claim("b", *b, torch.full((2, 2, 1), 5.0))
    assert weight.claims["b"].first.tolist() == [[True, True], [False, True]]
    assert weight.read(*b)[:, :, 0].tolist() == [[5, 5], [9, 5]]  # what a owns is not written
    weight.release("a")
    assert weight.claims["b"].first.all()  # the shared edge has moved
    assert weight.read(*b)[:, :, 0].tolist() == [[5, 5], [9, 5]]
    assert torch.equal(weight.read(*a)[0], untrained[0, [2, 1]])
    weight.release("b")
    assert torch.equal(everything(weight), untrained)


@pytest.mark.parametrize("kind", KINDS)
def test_claims_are_kept_with_16_bits_and_read_with_32(kind):
    weight = kind(4, 4, 9, std=1.0, seed=0)
    rows, columns = torch.tensor([0, 3]), torch.tensor([2, 1])
    values = torch.randn(2, 2, 9, generator=torch.Generator().manual_seed(1))
    values[0, 0, 0] = 1e6  # more than 16 bits can say
    weight.claim("a", rows, columns, values)
    read, owned = weight.read(rows, columns), weight.owned("a")
    assert (read.dtype, owned.dtype) == (torch.float32, torch.float16)
    assert torch.equal(read, owned.view_as(read).float())
    assert read[0, 0, 0] == 65504
    rest = values.flatten()[1:]
    assert ((read.flatten()[1:] - rest).abs() <= rest.abs() / 2048 + 1e-7).all()
    weight.claim("b", rows, columns, torch.zeros(2, 2, 9))
    weight.release("a")  # what b uses moves to it
    assert torch.equal(weight.read(rows, columns), read)
    assert weight.owned("b").dtype == torch.float16


@given(
    tickets=st.lists(st.tuples(*[st.integers(0, 2)] * 7), max_size=6),
    drops=st.lists(st.integers(0, 5), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_generated_and_held_weights_are_the_same_weights(tickets, drops):
    held, made = (kind(9, 12, 2, std=1.0, seed=5) for kind in KINDS)  # 3 and 4 blocks of 3 units
    for number, ticket in enumerate(tickets):
        rows = torch.tensor(ticket[:3]) * 3 + torch.arange(3)
        columns = torch.tensor(ticket[3:]) * 4 + torch.arange(4)
        values = torch.full((3, 4, 2), float(number + 1))
        for weight in (held, made):
            weight.claim(str(number), rows, columns, values)
    for drop in drops:
        if str(drop) in held.claims:
            for weight in (held, made):
                weight.release(str(drop))
    assert torch.equal(everything(held), everything(made))
    assert torch.equal(held.free_share(), made.free_share())
    for task in held.claims:
        assert torch.equal(held.owned(task), made.owned(task))
        assert torch.equal(held.claims[task].first, made.claims[task].first)


@given(
    tickets=st.lists(st.tuples(*[st.integers(0, 2)] * 7), max_size=8),
    drops=st.lists(st.integers(0, 7), max_size=3),
    drawn=st.tuples(*[st.integers(0, 2)] * 7),
    kind=st.sampled_from(KINDS),
)
@settings(max_examples=150, deadline=None)
def test_a_draw_meets_the_edges_that_earlier_tasks_own(tickets, drops, drawn, kind):
    weight = kind(9, 12, 2, std=1.0, seed=5)  # 3 and 4 blocks of 3 units
    for number, ticket in enumerate(tickets):
        rows = torch.tensor(ticket[:3]) * 3 + torch.arange(3)
        columns = torch.tensor(ticket[3:]) * 4 + torch.arange(4)
        weight.claim(str(number), rows, columns, torch.randn(3, 4, 2))
    for drop in drops:
        if str(drop) in weight.claims:
            weight.release(str(drop))
    rows = torch.tensor(drawn[:3]) * 3 + torch.arange(3)
    columns = torch.tensor(drawn[3:]) * 4 + torch.arange(4)
    edges, values = OwnedEdges(weight).at(rows, columns)
    owned = ~weight.free(rows, columns).flatten()
    order = edges.argsort()
    assert torch.equal(edges[order], torch.nonzero(owned).flatten())
    kept = weight.read(rows, columns).view(-1, 2)[owned]
    assert torch.equal(values[order].half(), kept.half())
