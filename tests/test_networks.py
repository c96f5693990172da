"""Every registered network, at every number of units: winners = masked = cut, and its twins."""

import pytest
import torch
from torch import nn

from rivals.errors import RivalsError
from rivals.experiment.run_settings import resolve
from rivals.nn.activations import GlobalPool
from rivals.nn.cut import PLAIN, run
from rivals.nn.network_plan import NetworkPlan, NetworkSettings, networks
from rivals.nn.selection import Draw, Masked, Settled
from rivals.nn.twta_layers import TWTALinear
from rivals.registry import imports_allowed
from rivals.seeds import Seed
from rivals.streams.task import Preprocessing
from rivals.tickets.graph_words import WORDS
from rivals.tickets.ticket import Ticket

TASK = "t.1"
SHAPES = {
    "mlp": (1, 28, 28), "lenet": (1, 16, 16), "alexnet": (3, 20, 20), "alexnet-table": (3, 32, 32),
}  # fmt: skip
UNITS = (2, 4, 8, 16, 32)


def shape_of(name):
    return SHAPES.get(name, (3, 12, 12))


def plan(name, units, activation="relu", **settings):
    return NetworkPlan(
        NetworkSettings(architecture=name, units=units, activation=activation, **settings),
        shape_of(name),
    )


def learned(network, ancestor=None, task=TASK):
    """Open, draw, settle, step and claim: every state a task passes through."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(r.blocks, r.units) for r in network.rivals()]
    posteriors = [torch.randn(shape, generator=generator) for shape in shapes]
    network.open(task, 5, posteriors, ancestor)
    images = torch.randn(8, *network_shape(network), generator=generator)
    network.train()
    network(images, task, Draw(task, "sparse", 0.5, generator, 1)).sum().backward()
    network.settle(task)
    with torch.no_grad():
        for _ in range(3):
            network(images, task, Settled(task))
    network.close(task)
    return network.eval(), images


def everything(layer):
    weight = layer.weight
    return weight.read(torch.arange(weight.rows), torch.arange(weight.columns))


def network_shape(network):
    return network.input_shape


CASES = [
    (name, units, unit)
    for name in networks
    for units in UNITS
    for unit in ("relu", "linear")
    if not (name == "resnet-small" and units == 32)  # 48 is not a multiple of 32
]


@pytest.mark.parametrize(("name", "units", "unit"), CASES)
def test_winners_masked_cut_and_reloaded_agree(name, units, unit, tmp_path):
    network, images = learned(plan(name, units, unit).rivals(Seed(0)))
    with torch.no_grad():
        winners = network(images, TASK)
        masked = network(images, TASK, Masked(TASK))
    classes, as_it_is = tuple("abcde"), Preprocessing(1.0, (0.0,), (1.0,))
    cut = Ticket(network.cut(TASK), TASK, classes, as_it_is, network.input_shape)
    cut.save(tmp_path / "ticket")
    for ticket in (cut, Ticket.load(tmp_path / "ticket")):
        for scores in (winners, masked):
            assert ticket.verify(images, lambda _, scores=scores: scores) <= 1e-5


@pytest.mark.parametrize("name", list(networks))
def test_a_ticket_is_plain_and_has_the_shape_of_the_native_twin(name):
    built = plan(name, 8)
    ticket = learned(built.rivals(Seed(0)))[0].cut(TASK)
    native = built.dense(Seed(0), "ticket")
    native.add(TASK, 5)
    shapes = [tuple(p.shape) for p in ticket.parameters()]
    assert shapes == [tuple(p.shape) for p in native.cut(TASK).parameters()]
    assert all(p.is_contiguous() for p in ticket.parameters())
    modules = [type(m).__module__ for m in ticket.modules() if m is not ticket]
    assert all(module.startswith("torch.nn") for module in modules)


def test_the_sizes_that_the_papers_name():
    def weights(name, size):
        built = plan(name, 8).dense(Seed(0), size)
        return sum(p.numel() for p in built.shared_parameters())

    alexnet = NetworkPlan(NetworkSettings(architecture="alexnet"), (3, 32, 32))
    assert sum(p.numel() for p in alexnet.dense(Seed(0)).shared_parameters()) == 6_499_328
    assert alexnet.rivals(Seed(0)).weight_count() == 6_499_328
    assert weights("mlp", "ticket") == 784 * 100 + 100 * 100
    assert 95_000 < weights("resnet-small", "ticket") < 105_000


@pytest.mark.parametrize("stream", ["cifar100", "tiny-imagenet", "five-datasets"])
def test_the_default_ticket_for_pictures_is_four_convolutions(stream):
    built = NetworkPlan(resolve(stream).network, (3, 32, 32))
    assert [rivals.blocks for rivals in built.rivals(Seed(0)).rivals()] == [16, 32, 64, 104]
    weights = sum(p.numel() for p in built.dense(Seed(0), "ticket").shared_parameters())
    assert weights == 9 * (3 * 16 + 16 * 32 + 32 * 64 + 64 * 104) < 105_000


@pytest.mark.parametrize(
    ("name", "units", "widths"),
    [
        ("lenet", 8, [16, 48, 400]),
        ("lenet", 32, [32, 64, 416]),
        ("alexnet", 8, [64, 128, 256, 2048, 2048]),
        ("alexnet-table", 16, [16, 16, 16, 32, 128, 128]),
        ("alexnet-table", 32, [32, 32, 32, 32, 128, 128]),
        ("mlp", 8, [800, 800]),
    ],
)
def test_widths_of_the_text_and_of_the_tables(name, units, widths):
    network = plan(name, units).rivals(Seed(0))
    assert [layer.rivals.count for layer in network.layers()] == widths
    assert all(layer.rivals.units == units for layer in network.layers())


def test_a_residual_stage_has_one_competition():
    network = plan("resnet18", 8).rivals(Seed(0))
    stem, first, second, _, again = network.layers()[:5]
    assert stem.rivals is second.rivals is again.rivals
    assert first.rivals is not stem.rivals
    assert len(network.rivals()) == 4 + 8 + 1  # stages, inner convolutions, the dense layer


def test_residual_losers_are_exactly_zero_everywhere():
    network, images = learned(plan("resnet-small", 4).rivals(Seed(0)))
    seen = []
    for part in network.body:
        part.register_forward_hook(lambda _m, _i, out: seen.append(out))
    with torch.no_grad():
        network(images, TASK, Masked(TASK))
    for flow in seen:
        lost = torch.ones(flow.source.count, dtype=torch.bool)
        lost[flow.source.winner_ids(TASK)] = False
        assert (flow.values[:, lost] == 0).all()


def test_weights_are_initialised_for_the_fan_that_is_live():
    for units in (2, 32):
        network = plan("alexnet", units).rivals(Seed(0))
        layer = network.layers()[4]
        live = 2048 // units
        assert float(everything(layer).std()) == pytest.approx((2 / live) ** 0.5, rel=0.02)
    full = plan("alexnet", 8, init="glorot").rivals(Seed(0)).layers()[4]
    assert float(everything(full).std()) == pytest.approx((2 / 4096) ** 0.5, rel=0.02)


def test_a_width_that_the_units_do_not_divide_names_the_nearest():
    with pytest.raises(RivalsError, match=r"width 50 .* 8 units; use a width of 48 or 56"):
        plan("mlp", 8, widths=(50, 800)).rivals(Seed(0))


@pytest.mark.parametrize("widths", [(8,), (8, 8, 8, 8)])
def test_a_wrong_number_of_widths_is_one_sentence(widths):
    with pytest.raises(RivalsError, match="does not take the widths"):
        plan("lenet", 8, widths=widths).rivals(Seed(0))


def test_unknown_networks_and_own_ones(tmp_path, monkeypatch):
    with pytest.raises(RivalsError, match="did you mean lenet"):
        plan("lent", 8).rivals(Seed(0))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\nfrom rivals.nn.activations import Flatten\n"
        "def mine(kind):\n    return nn.Sequential(Flatten(), kind.linear(24))\n"
    )
    with pytest.raises(RivalsError, match="a file alone cannot ask for that"):
        plan("my_networks:mine", 8).rivals(Seed(0))
    with imports_allowed(["my_networks:mine"]):
        network, images = learned(plan("my_networks:mine", 8).rivals(Seed(0)))
    with torch.no_grad():
        assert torch.allclose(network(images, TASK), network.cut(TASK)(images), atol=1e-5)
    for wrong in ("my_networks:yours", "no_such_module:mine"):
        with pytest.raises(RivalsError, match="was not found"), imports_allowed([wrong]):
            plan(wrong, 8).rivals(Seed(0))


def test_inheriting_copies_the_ancestors_ticket_into_free_edges():
    network, _ = learned(plan("mlp", 4, widths=(16, 16)).rivals(Seed(0)))
    second = network.layers()[1]
    old = network.ticket_slice(second, TASK)
    posteriors = [torch.full((r.blocks, r.units), 0.0) for r in network.rivals()]
    for rivals, posterior in zip(network.rivals(), posteriors, strict=True):
        free = (rivals.winners[TASK] + 1) % rivals.units
        posterior[torch.arange(rivals.blocks), free] = 9.0  # units that no task uses
    network.open("next", 3, posteriors, TASK)
    network.settle("next")
    assert torch.equal(second.training_copy.values, old)
    network.close("next")
    assert torch.equal(network.ticket_slice(second, "next"), old)
    assert torch.equal(network.ticket_slice(second, TASK), old)


def own(body_of):
    networks.register("own-for-tests")(body_of)
    return plan("own-for-tests", 4)


def test_a_body_that_does_not_end_in_features_is_refused():
    with pytest.raises(RivalsError, match=r"ends in the shape .*end it with Flatten or GlobalPool"):
        own(lambda kind: nn.Sequential(kind.conv(8, 3))).rivals(Seed(0))


def test_what_a_ticket_cannot_hold_is_refused_before_training():
    class Odd(nn.Module):
        def forward(self, flow):
            return flow.map(torch.sin)

    with pytest.raises(RivalsError, match="cannot hold the operation 'sin'"):
        own(lambda kind: nn.Sequential(GlobalPool(), kind.linear(8), Odd())).rivals(Seed(0))


def test_a_layer_that_a_ticket_cannot_hold_is_refused_before_training():
    class Odd(nn.Module):
        def forward(self, flow):
            return flow.map(lambda values: run(nn.Tanh(), values))

    with pytest.raises(RivalsError, match="cannot hold a layer of the kind Tanh; it is made of"):
        own(lambda kind: nn.Sequential(GlobalPool(), kind.linear(8), Odd())).rivals(Seed(0))


def test_what_a_ticket_holds_has_a_word_in_its_file():
    assert set(PLAIN) == set(WORDS)


def test_a_body_built_by_hand_has_no_dense_twin():
    built = own(lambda kind: nn.Sequential(GlobalPool(), TWTALinear(2, 4)))
    learned(built.rivals(Seed(0)))
    with pytest.raises(RivalsError, match="no dense version"):
        built.dense(Seed(0))


def test_a_mistake_in_an_own_network_is_not_blamed_on_widths():
    def wrong(kind):
        raise TypeError("a mistake of its own")

    with pytest.raises(TypeError, match="of its own"):
        own(wrong).rivals(Seed(0))
