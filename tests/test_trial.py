"""The trial: newcomers against the ancestor's units, decided by how far a unit had to move."""

import pytest
import torch

from rivals.learn.twta_trial import movement
from toys import TINY, lessons, make, same_bits, shortened, teach, ticket_bits

FIRST, SECOND = (shortened(lesson.task, 200) for lesson in lessons(2, "digits-permuted"))


def taught(name="twta", **settings):
    method = make(name, network=TINY, epochs=2, way="trial", compete=0.5, **settings)
    teach(method, FIRST)
    teach(method, SECOND)
    return method


def on_trial(name="twta", **settings):
    """A method that has learned the first task and stands just before the verdict on the second."""
    method = make(name, network=TINY, epochs=2, way="trial", compete=1.0, **settings)
    teach(method, FIRST)
    method.start(SECOND)
    method.learn(SECOND, lambda step: None)
    assert method.trial == FIRST.name
    return method


def test_movement_is_the_distance_in_lengths_of_the_ancestor():
    method = on_trial()
    moved = movement(method.network, FIRST.name)
    layer = method.network.layers()[1]
    start = method.network.ticket_slice(layer, FIRST.name)
    for block in range(layer.rivals.blocks):
        apart = (layer.work.values[block] - start[block]).norm() / start[block].norm()
        assert torch.isclose(moved[layer.rivals][block], apart)
    assert all((each > 0).all() for each in moved.values())


def test_nobody_wins_again_without_reuse():
    method = taught(reuse=0.0, prefer_free=100.0)
    pairs = zip(method.winners(FIRST.name), method.winners(SECOND.name), strict=True)
    assert not any((before == after).any() for before, after in pairs)


def test_a_task_of_units_that_win_again_owns_nothing_but_norms_and_a_head():
    method = taught(reuse=1.0)
    pairs = zip(method.winners(FIRST.name), method.winners(SECOND.name), strict=True)
    assert all(torch.equal(before, after) for before, after in pairs)
    for layer in method.network.layers():
        assert not layer.weight.claims[SECOND.name].first.any()


@pytest.mark.parametrize("name", ["twta", "random-ticket"])
def test_an_edge_is_spared_where_both_ends_won_again(name):
    method = on_trial(name, reuse=0.5, prefer_free=100.0)
    moved = list(movement(method.network, FIRST.name).values())
    method.finish(SECOND)
    first, second = method.network.layers()
    again = [
        first.rivals.winners[FIRST.name] == first.rivals.winners[SECOND.name],
        second.rivals.winners[FIRST.name] == second.rivals.winners[SECOND.name],
    ]
    spared = ~second.weight.claims[SECOND.name].first
    assert torch.equal(spared, again[1].unsqueeze(1) & again[0])
    assert [int(each.sum()) for each in again] == [len(far) // 2 for far in moved]
    least = [far < far.sort().values[len(far) // 2] for far in moved]
    by_merit = all(torch.equal(*pair) for pair in zip(again, least, strict=True))
    assert by_merit == (name == "twta")


def test_what_the_trial_has_trained_goes_on_where_edges_are_free():
    method = on_trial(reuse=0.5)
    before = [layer.work.values.clone() for layer in method.network.layers()]
    method.decide()
    for layer, trained in zip(method.network.layers(), before, strict=True):
        free = torch.ones(trained.shape[:2], dtype=torch.bool)
        free = free if layer.work.free is None else layer.work.free
        assert torch.equal(layer.work.values[free], trained[free])
        start = method.network.ticket_slice(layer, FIRST.name)
        assert torch.equal(layer.work.values[~free], start[~free])


def test_the_ancestor_keeps_every_bit_and_so_does_the_heir_when_it_goes():
    method = make(network=TINY, epochs=2, way="trial", compete=0.5, reuse=0.4, weight_decay=0.01)
    teach(method, FIRST)
    before = ticket_bits(method, FIRST.name)
    teach(method, SECOND)
    assert same_bits(before, ticket_bits(method, FIRST.name))
    heir = ticket_bits(method, SECOND.name)
    method.drop(FIRST.name)
    assert same_bits(heir, ticket_bits(method, SECOND.name))


def test_the_first_task_has_nobody_to_try_against():
    method = make(network=TINY, epochs=1, way="trial", compete=0.2)
    method.start(FIRST)
    assert not method.trial
    assert not method.competing


def test_momentum_goes_on_after_the_verdict():
    method = on_trial(reuse=0.5)

    def gathered():
        return [state["momentum_buffer"].clone() for state in method.optimisers[0].state.values()]

    before = gathered()
    method.decide()
    assert any(each.any() for each in before)
    assert all(torch.equal(a, b) for a, b in zip(before, gathered(), strict=True))
