"""Sparse training against the same training in plain autograd, step by step.

The plain form knows nothing of slices, works or leaves: it holds the weights of all contenders as
ordinary parameters, computes every unit, multiplies those that are not live by zero, and lets
autograd and the optimisers of torch do the rest. Only the random draws are taken from the method.
"""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from rivals.nn.competition import gumbel, relaxed_sample
from rivals.nn.twta_layers import TWTAConv2d
from rivals.streams.batching import epoch
from toys import lessons, make, shortened, steps_of

NETWORK = {"architecture": "lenet", "widths": (8, 8, 12), "units": 4}


class Plain:
    """LeNet by hand: two convolutions and a dense layer of all contenders, and a head."""

    def __init__(self, method):
        self.method, self.task = method, method.current
        layers = method.network.layers()
        rivals, heads = method.network.rivals(), method.network.heads
        self.padding = [layer.padding if isinstance(layer, TWTAConv2d) else 0 for layer in layers]
        self.weights = [leaf(layer.training_copy.values) for layer in layers]
        self.free = [
            torch.ones_like(weight) if layer.training_copy.free is None
            else layer.training_copy.free.unsqueeze(2).expand_as(weight).float()
            for layer, weight in zip(layers, self.weights, strict=True)
        ]  # fmt: skip
        self.start = [weight.detach().clone() for weight in self.weights]
        states = [layer.norm.state(self.task) for layer in layers]
        self.norms = [(leaf(state.scale), leaf(state.shift)) for state in states]
        self.head = leaf(heads[self.task].weight), leaf(heads[self.task].bias)
        self.posteriors = [leaf(each.posteriors[self.task]) for each in rivals]
        self.own = [*(p for pair in self.norms for p in pair), *self.head]
        settings = method.settings
        self.adam = torch.optim.Adam(self.posteriors, lr=settings.competition.lr)
        self.sgd = torch.optim.SGD([*self.weights, *self.own], lr=settings.lr)

    def gates(self, generator, temperature, live):
        """For each layer, what passes forward and with which strength it is trained."""
        for log_posterior in self.posteriors:
            noise = gumbel(tuple(log_posterior.shape), generator)
            sample = relaxed_sample(log_posterior, noise, temperature)
            best = sample.topk(live, dim=1).indices
            mask = torch.zeros_like(sample).scatter(1, best, 1.0)
            if live == 1:
                yield mask.T.flatten(), (mask * sample).T.flatten()
            else:
                strength = mask * sample / (mask * sample).sum(1, keepdim=True)
                yield strength.T.flatten(), strength.T.flatten()

    def scores(self, values, gates):
        for number, (weight, padding) in enumerate(zip(self.weights, self.padding, strict=True)):
            if number < 2:
                side = int(weight.shape[2] ** 0.5)
                kernel = weight.view(*weight.shape[:2], side, side)
                values = F.conv2d(values, kernel, padding=padding)
            else:
                values = F.linear(values.flatten(1), weight.flatten(1))
            values = F.batch_norm(values, None, None, *self.norms[number], training=True)
            forward, backward = (g.view(1, -1, *(1,) * (values.dim() - 2)) for g in gates[number])
            values = F.relu(values * backward + (values * (forward - backward)).detach())
            if number < 2:
                values = F.max_pool2d(values, 2)
        return F.linear(values, self.head[0].flatten(1), self.head[1])

    def step(self, batch, gates, lr):
        loss = F.cross_entropy(self.scores(batch.images, gates), batch.labels)
        loss.backward()
        for weight, free in zip(self.weights, self.free, strict=True):
            weight.grad *= free
        self.sgd.param_groups[0]["lr"] = lr
        self.sgd.step()
        self.adam.step()
        for optimiser in (self.sgd, self.adam):
            optimiser.zero_grad(set_to_none=False)
        with torch.no_grad():
            for weight, free, old in zip(self.weights, self.free, self.start, strict=True):
                weight.copy_(torch.where(free > 0, weight, old))
        return loss.item()

    def settle(self):
        """From now on only the winners, with momentum; the losers stay where they are, at zero."""
        s = self.method.settings
        self.winners = [p.detach().argmax(1) for p in self.posteriors]
        masks = [
            F.one_hot(won, p.shape[1]).float().T.flatten()
            for won, p in zip(self.winners, self.posteriors, strict=True)
        ]
        parameters = [*self.weights, *self.own]
        self.sgd = torch.optim.SGD(parameters, lr=s.lr, momentum=s.momentum)
        return [(mask, mask) for mask in masks]

    def won(self, number):
        """The winners' part of a weight."""
        blocks = len(self.winners[number])
        rows = self.winners[number] * blocks + torch.arange(blocks)
        if number == 0:
            return self.weights[0].detach()[rows]
        before = self.winners[number - 1]
        columns = before * len(before) + torch.arange(len(before))
        return self.weights[number].detach()[rows][:, columns]


def leaf(tensor):
    return tensor.detach().clone().requires_grad_()


def close(ours, theirs):
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("contenders", "live"), [(2, 1), (0, 1), (0, 3)])
def test_sparse_training_is_plain_autograd_with_masks(contenders, live):
    settings = {"epochs": 3, "share": 0.5, "lr": 0.02, "growth.enabled": False}
    settings |= {"gating": "sparse", "init_std": 4.0, "competition.lr": 0.1}
    method = make(network=NETWORK, contenders=contenders, active=live, active_end=live, **settings)
    one, two = (shortened(lesson.task, 200) for lesson in lessons(2))
    method.start(one)
    steps_of(method, one)
    method.finish(one)
    competition = method.settings.competition.replace(prefer_free=0.0)
    method.settings = method.settings.replace(competition=competition)
    method.start(two)  # inherits, and meets edges that the first task protects
    plain, gates = Plain(method), None
    assert any(float(free.min()) == 0 for free in plain.free), "some edges are protected"
    for number in range(method.settings.epochs):
        seed = method.seed.child("epoch", two.name, number)
        for batch in epoch([two], method.settings.batching, seed):
            method.before_step(batch)
            lr = method.settings.lr * (1 - method.position.step / method.position.steps)
            if method.competing:
                generator = method.seed.child("draw", two.name, method.position.step).torch()
                drawn = list(plain.gates(generator, method.temperature(), method.active()))
                theirs = plain.step(batch, drawn, lr)
            else:
                gates = gates or plain.settle()
                theirs = plain.step(batch, gates, lr)
            ours = method.step(batch).loss
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
            method.position.step += 1
            compare(method, plain)
    assert not method.competing, "both phases were seen"


def compare(method, plain):
    """Weights, norms, head and posteriors of both forms, after a step."""
    network, task = method.network, plain.task
    for number, layer in enumerate(network.layers()):
        state, (scale, shift) = layer.norm.state(task), plain.norms[number]
        if method.competing:
            close(layer.training_copy.values, plain.weights[number])
            close(state.scale, scale)
            close(state.shift, shift)
        else:
            close(layer.training_copy.values, plain.won(number))
            blocks = len(plain.winners[number])
            rows = plain.winners[number] * blocks + torch.arange(blocks)
            close(state.scale, scale[rows])
            close(state.shift, shift[rows])
    if method.competing:
        for rivals, log_posterior in zip(network.rivals(), plain.posteriors, strict=True):
            close(rivals.posteriors[task], log_posterior)


class PlainSiblings:
    """The competition of siblings by hand: every unit of LeNet is computed, losers times zero.

    Each layer has one parameter of the shape of the ticket. All rivals take their weights from it,
    but for edges that the first task owns.
    """

    def __init__(self, method):
        self.method, self.task = method, method.current
        layers = method.network.layers()
        self.padding = [layer.padding if isinstance(layer, TWTAConv2d) else 0 for layer in layers]
        self.weights = [leaf(layer.training_copy.values) for layer in layers]
        self.full, self.free = [], []
        for layer in layers:
            every = torch.arange(layer.weight.rows), torch.arange(layer.weight.columns)
            self.full.append(layer.weight.read(*every))
            self.free.append(layer.weight.free(*every).unsqueeze(2))
        states = [layer.norm.state(self.task) for layer in layers]
        self.norms = [(leaf(state.scale), leaf(state.shift)) for state in states]
        head = method.network.heads[self.task]
        self.head = leaf(head.weight), leaf(head.bias)
        rivals = method.network.rivals()
        self.posteriors = [leaf(each.posteriors[self.task]) for each in rivals]
        own = [*self.weights, *(p for pair in self.norms for p in pair), *self.head]
        s = method.settings
        self.sgd = torch.optim.SGD(own, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay)
        self.adam = torch.optim.Adam(self.posteriors, lr=s.competition.lr)
        self.won = None

    def gates(self, generator, temperature):
        for log_posterior in self.posteriors:
            noise = gumbel(tuple(log_posterior.shape), generator)
            sample = relaxed_sample(log_posterior, noise, temperature)
            hard = F.one_hot(sample.argmax(1), sample.shape[1])
            yield hard.T.flatten(), (hard * sample).T.flatten()

    def scores(self, values, gates):
        for number, shared in enumerate(self.weights):
            height, width, _ = self.full[number].shape
            rows, columns = torch.arange(height), torch.arange(width)
            spread = shared[rows % shared.shape[0]][:, columns % shared.shape[1]]
            weight = torch.where(self.free[number], spread, self.full[number])
            if number < 2:
                side = int(weight.shape[2] ** 0.5)
                kernel = weight.view(*weight.shape[:2], side, side)
                values = F.conv2d(values, kernel, padding=self.padding[number])
            else:
                values = F.linear(values.flatten(1), weight.flatten(1))
            norm = [each[rows % len(each)] for each in self.norms[number]]
            values = F.batch_norm(values, None, None, *norm, training=True)
            forward, backward = (g.view(1, -1, *(1,) * (values.dim() - 2)) for g in gates[number])
            values = F.relu(values * backward + (values * (forward - backward)).detach())
            if number < 2:
                values = F.max_pool2d(values, 2)
        head = self.head[0].flatten(1)
        return F.linear(
            values, head[:, torch.arange(values.shape[1]) % head.shape[1]], self.head[1]
        )

    def step(self, batch, lr):
        if self.method.competing:
            seed = self.method.seed.child("draw", self.task, self.method.position.step)
            gates = list(self.gates(seed.torch(), self.method.temperature()))
        else:
            if self.won is None:
                self.settle()
            gates = self.won
        loss = F.cross_entropy(self.scores(batch.images, gates), batch.labels)
        loss.backward()
        self.sgd.param_groups[0]["lr"] = lr
        self.sgd.step()
        if self.method.competing:
            self.adam.step()
        for optimiser in (self.sgd, self.adam):
            optimiser.zero_grad(set_to_none=False)
        return loss.item()

    def settle(self):
        """The winners stay; what they share with the losers is theirs from now on."""
        hard = [F.one_hot(p.detach().argmax(1), p.shape[1]) for p in self.posteriors]
        self.won = [(each.float().T.flatten(),) * 2 for each in hard]


def test_siblings_are_plain_autograd_on_shared_values():
    settings = {
        "epochs": 3, "share": 0.5, "lr": 0.02, "momentum": 0.9, "weight_decay": 0.01,
        "growth.enabled": False, "gating": "siblings", "contenders": 0, "init_std": 0.5,
        "prefer_free": 0.0,
    }  # fmt: skip
    method = make(network=NETWORK, **settings)
    one, two = (shortened(lesson.task, 200) for lesson in lessons(2))
    method.start(one)
    steps_of(method, one)
    method.finish(one)
    method.start(two)
    plain, phases = PlainSiblings(method), set()
    assert all(not bool(free.all()) for free in plain.free), "some edges belong to the first task"
    before = [p.detach().clone() for p in plain.posteriors]
    for number in range(method.settings.epochs):
        seed = method.seed.child("epoch", two.name, number)
        for batch in epoch([two], method.settings.batching, seed):
            method.before_step(batch)
            phases.add(method.competing)
            lr = method.settings.lr * (1 - method.position.step / method.position.steps)
            theirs = plain.step(batch, lr)
            assert method.step(batch).loss == pytest.approx(theirs, rel=1e-4, abs=1e-5)
            method.position.step += 1
            compare_siblings(method, plain)
    assert phases == {True, False}
    assert any(not torch.equal(a, b) for a, b in zip(before, plain.posteriors, strict=True))
    rivals = method.network.rivals()
    for each, log_posterior in zip(rivals, plain.posteriors, strict=True):
        assert torch.equal(each.winners[two.name], log_posterior.argmax(1))


def compare_siblings(method, plain):
    for number, layer in enumerate(method.network.layers()):
        values, shared = layer.training_copy.values, plain.weights[number]
        if method.competing:
            close(values, shared)
        else:  # owned edges have their owner's values in the ticket, and go their own way by hand
            free = layer.training_copy.free
            mask = torch.ones(values.shape[:2], dtype=torch.bool) if free is None else free
            close(values[mask], shared[mask])
        state, (scale, shift) = layer.norm.state(plain.task), plain.norms[number]
        close(state.scale, scale)
        close(state.shift, shift)
    close(method.network.heads[plain.task].weight, plain.head[0])
    if method.competing:
        for rivals, log_posterior in zip(method.network.rivals(), plain.posteriors, strict=True):
            close(rivals.posteriors[plain.task], log_posterior)
