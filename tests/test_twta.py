"""TWTA: protection, inheritance, growth, dropping, and what the gradient touches."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from rivals.errors import RivalsError
from rivals.learn.twta import TWTASettings
from toys import TINY, accuracy, lessons, make, same_bits, shortened, steps_of, teach, ticket_bits


def test_learns_digits_and_forgets_nothing():
    method = make(network={"architecture": "lenet"}, epochs=8)
    found = lessons(5)
    for lesson in found:
        teach(method, lesson.task)
    assert sum(accuracy(method, lesson) for lesson in found) / 5 >= 96


@pytest.mark.parametrize("inherit", ["previous", "none"])
@pytest.mark.parametrize("units", [2, 4])
def test_tickets_keep_every_bit_with_momentum_and_decay(inherit, units):
    method = make(
        network={**TINY, "units": units}, momentum=0.9, weight_decay=0.01, inherit=inherit, epochs=1
    )
    bits, images = {}, {}
    for lesson in lessons(6, "digits-permuted"):
        teach(method, shortened(lesson.task, 200))
        name = lesson.task.name
        bits[name], images[name] = ticket_bits(method, name), lesson.test.images
    for name, before in bits.items():
        assert same_bits(before, ticket_bits(method, name)), name


def test_without_protection_old_tickets_change():
    method = make(protect="none", inherit="none", prefer_free=0.0, enabled=False, network=TINY)
    first, second = lessons(2, "digits-permuted")
    teach(method, first.task)
    before = ticket_bits(method, first.task.name)
    teach(method, second.task)
    assert not same_bits(before, ticket_bits(method, first.task.name))


def everything(layer):
    weight = layer.weight
    return weight.read(torch.arange(weight.rows), torch.arange(weight.columns))


@pytest.mark.parametrize("weights", ["generated", "stored"])
def test_edges_that_nobody_claimed_are_untrained_after_a_task(weights):
    method = make(epochs=1, network={**TINY, "storage": weights})
    teach(method, lessons(1)[0].task)
    for layer in method.network.layers():
        rows, columns = torch.arange(layer.weight.rows), torch.arange(layer.weight.columns)
        untrained, free = layer.weight.untrained(rows, columns), layer.weight.free(rows, columns)
        assert torch.equal(everything(layer)[free], untrained[free])
        assert not torch.equal(everything(layer)[~free], untrained[~free])


@pytest.mark.parametrize("weights", ["generated", "stored"])
def test_dropping_every_task_leaves_the_network_as_it_was_made(weights):
    method = make(epochs=1, network={**TINY, "storage": weights})
    fresh = [everything(layer) for layer in method.network.layers()]
    for lesson in lessons(4):
        teach(method, lesson.task)
    for task in list(method.known):
        method.drop(task)
    for layer, before in zip(method.network.layers(), fresh, strict=True):
        assert torch.equal(everything(layer)[: len(before), : before.shape[1]], before)
        assert not layer.weight.claims
    assert not method.network.heads


def test_generated_and_held_weights_learn_the_same_bits():
    tickets = []
    for weights in ("generated", "stored"):
        method = make(epochs=1, network={**TINY, "units": 2, "storage": weights})
        for lesson in lessons(4, "digits-permuted"):
            teach(method, shortened(lesson.task, 120))
        tickets.append([ticket_bits(method, task) for task in method.known])
    assert all(same_bits(a, b) for a, b in zip(*tickets, strict=True))


@pytest.mark.parametrize("contenders", [1, 2, 3])
def test_contenders_bound_what_a_task_works_on(contenders):
    method = make(epochs=4, gating="sparse", contenders=contenders)
    lesson = lessons(1)[0]
    method.start(lesson.task)
    first, second = method.network.layers()
    assert first.training_copy.values.shape == (4 * contenders, 64, 1)
    assert second.training_copy.values.shape == (4 * contenders, 4 * contenders, 1)
    favourites = [r.contenders[lesson.task.name] for r in method.network.rivals()]
    steps_of(method, lesson.task)
    method.end_task(lesson.task)
    for allowed, won in zip(favourites, method.winners(lesson.task.name), strict=True):
        assert (allowed == won.unsqueeze(1)).any(1).all()
    assert accuracy(method, lesson) > 90


LESSONS = lessons(1, "digits-permuted")


@given(
    acts=st.lists(st.sampled_from(["learn", "learn", "learn", "grow", "drop"]), max_size=9),
    seed=st.integers(0, 999),
    units=st.sampled_from([1, 2, 3]),
    inherit=st.sampled_from(["previous", "none"]),
    data=st.data(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_sequence_of_learn_grow_and_drop_keeps_surviving_tickets(
    acts, seed, units, inherit, data
):
    network = {"architecture": "mlp", "widths": (6, 6), "units": units}
    method = make(network=network, seed=seed, epochs=1, inherit=inherit, weight_decay=0.01)
    alive = {}
    for number, act in enumerate(acts):
        if act == "learn":
            task = shortened(LESSONS[0].task, 60, name=f"task {number}")
            teach(method, task)
            alive[task.name] = ticket_bits(method, task.name)
        elif act == "grow":
            rivals = method.network.rivals()
            method.network.grow(data.draw(st.sampled_from(rivals)))
        elif alive:
            gone = data.draw(st.sampled_from(sorted(alive)))
            method.drop(gone)
            del alive[gone]
        for name, before in alive.items():
            assert same_bits(before, ticket_bits(method, name)), (act, name)
    other = make(network=network, seed=seed, epochs=1, inherit=inherit, weight_decay=0.01)
    other.load(method.state())  # the stack of claims alone gives every ticket back
    for name, before in alive.items():
        assert same_bits(before, ticket_bits(other, name))


def test_growth_is_automatic_and_leaves_room():
    method = make(network={**TINY, "units": 2}, epochs=1)
    for lesson in lessons(8, "digits-permuted"):
        teach(method, shortened(lesson.task, 80))
        facts = method.task_facts(lesson.task.name)
        assert min(facts["trainable"].values()) >= 0.25 or facts["units"][0] > 2
    assert method.network.rivals()[0].units > 2


def test_growth_ends_even_where_it_cannot_please():
    network = {**TINY, "units": 1}
    method = make(network=network, epochs=1, prefer_free=0.0, below=1.0)
    for lesson in lessons(2, "digits-permuted"):
        teach(method, shortened(lesson.task, 60))
    assert 1 < method.network.rivals()[0].units <= 9


def test_a_full_network_that_may_not_grow_says_so_and_keeps_its_tasks():
    method = make(network={**TINY, "units": 1}, enabled=False, epochs=1)
    one, two = lessons(2)
    teach(method, one.task)
    before = ticket_bits(method, one.task.name)
    with pytest.raises(RivalsError, match=r"network is full.*growth.enabled=true"):
        method.start(two.task)
    assert same_bits(before, ticket_bits(method, one.task.name))
    assert list(method.known) == [one.task.name]


def test_winners_prefer_free_edges():
    method = make(network={**TINY, "units": 8}, epochs=1)
    one, two = lessons(2)
    teach(method, one.task)
    teach(method, two.task)
    first = [w.tolist() for w in method.winners(one.task.name)]
    second = [w.tolist() for w in method.winners(two.task.name)]
    assert all(a != b for a, b in zip(first[0], second[0], strict=True))


@pytest.mark.parametrize("way", ["relaxed", "gated", "sparse"])
def test_every_way_to_compete_learns(way):
    method = make(gating=way, epochs=6, share=0.3)
    lesson = lessons(1)[0]
    assert accuracy(teach(method, lesson.task), lesson) > 90


def test_one_draw_per_example():
    method = make(gating="relaxed", per_example=True, epochs=4)
    lesson = lessons(1)[0]
    assert accuracy(teach(method, lesson.task), lesson) > 90


def density(**changes):
    method = make(
        share=1.0, epochs=1, contenders=0, active=2, active_end=2, protect="none", **changes
    )
    lesson = lessons(1)[0]
    return teach(method, lesson.task).task_facts(lesson.task.name)["gradient_density"]


def test_the_gradient_is_as_dense_as_what_was_live():
    everything = density(gating="relaxed")
    assert everything > 0.5
    assert density(gating="sparse") < 0.5 * everything
    winners = density(gating="relaxed", keep_gradients="winner")
    assert winners < 0.3 * everything  # one of four units
    favourites = density(gating="relaxed", keep_gradients="threshold", gradient_threshold=0.3)
    assert favourites < 0.5 * everything


def test_gradient_keep_winner_leaves_the_others_alone():
    method = make(
        gating="relaxed", keep_gradients="winner", share=1.0, epochs=1, init_std=0.1, contenders=0
    )
    task = shortened(lessons(1)[0].task, 40)
    method.start(task)
    before = [layer.training_copy.values.clone() for layer in method.network.layers()]
    steps_of(method, task)  # a single step
    for layer, old in zip(method.network.layers(), before, strict=True):
        moved = (layer.training_copy.values != old).flatten(1).any(1).view(4, -1)  # (units, blocks)
        assert (moved.sum(0) <= 1).all()


def test_loss_over_all_seen_classes_freezes_old_heads():
    method = make(loss_over="seen", epochs=8)
    one, two = lessons(2)
    teach(method, one.task)
    old = {k: v.clone() for k, v in method.network.heads[one.task.name].tensors().items()}
    teach(method, two.task)
    assert same_bits(old, dict(method.network.heads[one.task.name].tensors()))
    assert accuracy(method, two) > 90


def test_competition_settles_on_the_posteriors_best():
    method = make(share=0.5, epochs=2)
    task = lessons(1)[0].task
    method.start(task)
    seen = {}

    def watch(step):
        if method.competing:
            seen["last"] = [
                r.contenders[task.name].gather(1, r.posteriors[task.name].argmax(1, keepdim=True))
                for r in method.network.rivals()
            ]

    steps_of(method, task, watch)
    assert not method.competing
    for found, won in zip(seen["last"], method.winners(task.name), strict=True):
        assert torch.equal(found.squeeze(1), won)


def posteriors_of(method, task):
    """The posteriors of `task` as they start, and as they are when its winners are chosen."""

    def present():
        return [rivals.posteriors[task.name].detach().clone() for rivals in method.network.rivals()]

    method.start(task)
    started, seen = present(), {}

    def watch(step):
        if method.competing:
            seen["last"] = present()

    steps_of(method, task, watch)
    method.end_task(task)
    return started, seen["last"]


def test_the_default_learns_its_posteriors_on_every_task():
    method = make(epochs=6)
    for lesson in lessons(2):
        started, settled = posteriors_of(method, lesson.task)
        for before, after in zip(started, settled, strict=True):
            moved = (after - before).abs()
            assert float(moved.max()) > 0.05
            assert float((moved > 0).float().mean()) > 0.5
        facts = method.task_facts(lesson.task.name)
        assert facts["entropy"][0] != facts["entropy"][1]
        assert 0 <= facts["winners_changed"] <= 1
        assert 0 < facts["gradient_density"] < 1
        assert accuracy(method, lesson) > 90


def test_without_a_learning_rate_units_are_drawn_and_no_posterior_is_learned():
    method = make(epochs=2, **{"competition.lr": 0.0})
    started, settled = posteriors_of(method, lessons(1)[0].task)
    assert same_bits(dict(enumerate(started)), dict(enumerate(settled)))


def test_random_ticket_never_competes_but_is_otherwise_twta():
    method = make("random-ticket", epochs=4)
    lesson = lessons(1)[0]
    method.start(lesson.task)
    assert not method.competing
    assert method.settings == TWTASettings(epochs=4)
    steps_of(method, lesson.task)
    method.end_task(lesson.task)
    assert accuracy(method, lesson) > 90


def test_the_paper_preset_runs():
    literal = {"activation": "linear", "norm": "none", "init": "glorot"}
    method = make(
        network={**TINY, **literal}, share=1.0, gating="relaxed", init_std=0.0, momentum=0.0,
        lr=0.1, optimizer="sgd", prefer_free=0.0, protect="none", inherit="none", enabled=False,
    )  # fmt: skip
    for lesson in lessons(2):
        teach(method, lesson.task)
    assert all(torch.isfinite(everything(layer)).all() for layer in method.network.layers())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"share": 1.5}, "competition.share is 1.5, but must be at most 1"),
        (
            {"gating": "loud"},
            "competition.gating is 'loud'; use siblings, relaxed, gated or sparse",
        ),
        ({"active": 1, "active_end": 2}, "competition.active goes from 1 to 2"),
        ({"temperature": 0.0}, "competition.temperature is 0.0, but must be more than 0"),
        ({"init_std": -1.0}, "competition.init_std is -1.0, but must be at least 0"),
        ({"per_example": True}, "competition.per_example needs gating=relaxed"),
        ({"competition": 3}, "competition must hold settings by name, but is '3'"),
        ({"epochs": 0}, "epochs is 0, but must be at least 1"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"protect": "all"}, "protect is 'all'; use edges or none"),
    ],
)
def test_settings_out_of_range(changes, words):
    with pytest.raises(RivalsError, match=words):
        TWTASettings(**changes) if "competition" in changes else TWTASettings.from_paths(changes)


def first_layer_free(name):
    """Share of the first layer's edges that a second task finds free, the network not growing."""
    method = make(
        name, network={"architecture": "mlp", "widths": (64, 64), "units": 2}, enabled=False
    )
    for lesson in lessons(2, "digits-permuted"):
        teach(method, shortened(lesson.task, 120))
    task = lessons(2, "digits-permuted")[1].task.name
    return method.task_facts(task)["trainable"]["layer0"]


def test_winners_are_chosen_for_their_free_edges_and_random_tickets_by_chance():
    assert first_layer_free("twta") == 1.0
    assert 0.2 < first_layer_free("random-ticket") < 0.8
