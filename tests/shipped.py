"""Tickets that tests ship: of every kind of network, quickly taught, with real pictures."""

from __future__ import annotations

import functools

import numpy as np
import torch
from sklearn.datasets import load_sample_images
from torch import nn

from rivals.nn.activations import Activation, Flatten, MaxPool
from rivals.nn.network_plan import networks
from rivals.streams.stream import StreamItem
from rivals.streams.task import Examples, Preprocessing, Task
from rivals.tickets.ticket import Ticket
from toys import accuracy, lessons, make, teach

SIDE = 32


class TwoPaths(nn.Module):
    """A user's own: a fine and a coarse look, added."""

    def __init__(self, build, maps=16, dense=32):
        super().__init__()
        stream = build.stream(maps)
        self.fine = build.conv(maps, 3, padding=1, stream=stream, activate=False)
        self.coarse = build.conv(maps, 5, padding=2, stream=stream, activate=False)
        self.end = nn.Sequential(
            Activation(build.activation), MaxPool(2), Flatten(), build.linear(dense)
        )

    def forward(self, flow):
        return self.end(self.fine(flow) + self.coarse(flow))


NETWORKS = {
    "lenet": {"architecture": "lenet", "units": 8},
    "alexnet": {"architecture": "alexnet", "widths": (16, 16, 32, 128, 128), "units": 4},
    "resnet18": {"architecture": "resnet18", "widths": (16, 16, 32, 32, 64), "units": 4},
    "own": {"architecture": "two-paths-of-tests", "units": 4},
}


@functools.cache
def photographs():
    """Pieces of two photographs that come with scikit-learn: a temple in China, or a flower?"""
    images, labels = [], []
    for label, photograph in enumerate(load_sample_images().images):
        pixels = torch.from_numpy(np.array(photograph)).permute(2, 0, 1)
        for top in range(0, pixels.shape[1] - 2 * SIDE, 2 * SIDE):
            for left in range(0, pixels.shape[2] - 2 * SIDE, 2 * SIDE):
                piece = pixels[:, top : top + 2 * SIDE : 2, left : left + 2 * SIDE : 2]
                images.append(piece)
                labels.append(label)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    found = Examples(torch.stack(images)[order].contiguous(), torch.tensor(labels)[order])
    train, test = found.subset(torch.arange(40, len(order))), found.subset(torch.arange(40))
    prepare = Preprocessing(255.0, (0.4, 0.4, 0.4), (0.25, 0.25, 0.3))
    task = Task("where from", ("a temple", 'Blüte "?'), train, test, prepare)
    return StreamItem(task, test)


@functools.cache
def shipped(kind):
    """A ticket of one of NETWORKS, and the lesson that it was taught."""
    networks.register("two-paths-of-tests")(TwoPaths)
    lesson = lessons(1, tasks=2)[0] if kind in ("lenet", "own") else photographs()
    shape = tuple(lesson.test.images.shape[1:])
    method = make(network=NETWORKS[kind], shape=shape, epochs=4)
    teach(method, lesson.task)
    right = accuracy(method, lesson)
    task = lesson.task
    network = method.ticket(task.name)
    return Ticket(
        network, task.name, task.classes, task.preprocessing, shape, accuracy=right
    ), lesson
