"""Networks of spikes and recurrent cells written by hand: loops over time that keep their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Made
from assay.suites.libraries.row import library

TIME, BATCH, WIDTH = 5, 3, 8


def sequence() -> Tensor:
    """Shapes: -> sequence[time, batch, width]."""
    return torch.rand(TIME, BATCH, WIDTH, requires_grad=True)


class Spiking(nn.Module):
    """Two layers of neurons: all spikes and all potentials of the last layer, stacked, and its last potential."""

    def __init__(self, neuron: Callable[[], Any]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 16), nn.Linear(16, 4)
        self.hidden, self.output = neuron(), neuron()

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden, output = self.hidden.reset_mem(), self.output.reset_mem()
        spikes, potentials = [], []
        for now in given.unbind():
            fired, hidden = self.hidden(self.first(now), hidden)
            fired, output = self.output(self.second(fired), output)
            spikes.append(fired)
            potentials.append(output)
        return torch.stack(spikes), torch.stack(potentials), output


@library("snntorch", tags=("recurrent",))
def leaky() -> Made:
    """Leaky neurons with a learned decay."""
    import snntorch

    return Spiking(lambda: snntorch.Leaky(beta=0.9, learn_beta=True)), (sequence(),), {}


@library("snntorch", tags=("recurrent",))
def leaky_that_resets_to_zero() -> Made:
    """Leaky neurons whose potential a spike clears, with a sigmoid for their gradient."""
    import snntorch
    from snntorch import surrogate

    gradient = surrogate.fast_sigmoid(slope=10)
    return Spiking(lambda: snntorch.Leaky(beta=0.8, spike_grad=gradient, reset_mechanism="zero")), (sequence(),), {}


@library("snntorch", tags=("recurrent",))
def lapicque() -> Made:
    """Neurons of a resistor and a capacitor."""
    import snntorch

    return Spiking(lambda: snntorch.Lapicque(beta=0.5, time_step=1, R=1)), (sequence(),), {}


@library("snntorch", tags=("recurrent",))
def synaptic() -> Made:
    """Neurons with a current and a potential."""
    import snntorch

    return _Synaptic(snntorch.Synaptic(alpha=0.7, beta=0.8)), (sequence(),), {}


class _Synaptic(nn.Module):
    def __init__(self, neuron: Any) -> None:
        super().__init__()
        self.layer, self.neuron = nn.Linear(WIDTH, 4), neuron

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        current, potential = self.neuron.reset_mem()
        spikes = []
        for now in given.unbind():
            fired, current, potential = self.neuron(self.layer(now), current, potential)
            spikes.append(fired)
        return torch.stack(spikes), potential


@library("snntorch", tags=("recurrent",))
def recurrent_leaky() -> Made:
    """Neurons that see their own spikes."""
    import snntorch

    return _Recurrent(snntorch.RLeaky(beta=0.8, linear_features=4)), (sequence(),), {}


class _Recurrent(nn.Module):
    def __init__(self, neuron: Any) -> None:
        super().__init__()
        self.layer, self.neuron = nn.Linear(WIDTH, 4), neuron

    def forward(self, given: Tensor) -> tuple[Tensor, Tensor]:
        fired, potential = self.neuron.reset_mem()
        spikes = []
        for now in given.unbind():
            fired, potential = self.neuron(self.layer(now), fired, potential)
            spikes.append(fired)
        return torch.stack(spikes), potential


@library("spikingjelly", tags=("recurrent",))
def integrate_and_fire() -> Made:
    """Neurons that keep their potential in the module, cleared before each sequence."""
    from spikingjelly.activation_based import functional, layer, neuron

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(layer.Linear(WIDTH, 8), neuron.LIFNode(), layer.Linear(8, 4), neuron.IFNode())

        def forward(self, given: Tensor) -> Tensor:
            functional.reset_net(self)
            return torch.stack([self.layers(now) for now in given.unbind()])

    return Network(), (sequence(),), {}


@library("ncps", tags=("recurrent",))
def liquid() -> Made:
    """Liquid time constants: an equation solved in each step, over sparse wires."""
    from ncps.torch import LTC
    from ncps.wirings import AutoNCP

    return LTC(WIDTH, AutoNCP(10, 3), batch_first=False), (sequence(),), {}


@library("ncps", tags=("recurrent",))
def closed_form() -> Made:
    """Liquid time constants in closed form."""
    from ncps.torch import CfC

    return CfC(WIDTH, 6, batch_first=False), (sequence(),), {}
