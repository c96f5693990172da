"""An architecture of your own: a convolution, a shortcut around a second one, and a linear layer.

One function builds it in three forms: with rival units for TWTA, dense for other methods, and
small, in the shape of a ticket. What is added must have the same winners, so both layers write to
one stream of the builder.
"""

import torch
from torch import nn

import rivals
from rivals.nn.activations import Activation, Flatten, MaxPool


class Shortcut(nn.Module):
    """conv → (+ conv) → ReLU → pooling → linear"""

    def __init__(self, builder, maps, dense):
        super().__init__()
        stream = builder.stream(maps)
        self.first = builder.conv(maps, 3, padding=1, stream=stream)
        self.second = builder.conv(maps, 3, padding=1, stream=stream, activate=False)
        end = Activation(builder.activation), MaxPool(2), Flatten(), builder.linear(dense)
        self.end = nn.Sequential(*end)

    def forward(self, x):
        x = self.first(x)
        return self.end(x + self.second(x))


@rivals.networks.register("shortcut")
def shortcut(builder, widths=()):
    return Shortcut(builder, *(widths or (64, 128)))


settings = {"architecture": "shortcut", "units": 8, "epochs": 5}
results = rivals.run("digits", settings=settings, out="runs/shortcut")
print(f"{results.accuracy:.1f} % right over five tasks, {results.forgetting:.1f} points forgotten")

ticket = rivals.Ticket.load("runs/shortcut/tickets/0-1")  # the network of the first task alone
weights = sum(p.numel() for p in ticket.parameters())
print(f"The ticket of task 0-1 has {weights:,} weights and answers {tuple(ticket.classes)}.")
assert ticket(torch.zeros(3, *ticket.input_shape, dtype=torch.uint8)).shape == (3, 2)
