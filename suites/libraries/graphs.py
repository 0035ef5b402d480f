"""Networks over graphs, molecules and points, some of them equivariant."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Case, Made
from assay.suites.libraries.row import library, row

NODES, WIDTH = 12, 8


def edges(count: int = 30) -> Tensor:
    """Shapes: -> edges[2, count], from source to target."""
    return torch.randint(NODES, (2, count))


def _graph(name: str, settings: Mapping[str, Any]) -> Made:
    from torch_geometric.nn import models

    network = getattr(models, name)(WIDTH, 16, 2, out_channels=4, **settings)
    return network, (torch.randn(NODES, WIDTH), edges()), {}


GEOMETRIC: dict[str, Mapping[str, Any]] = {
    "GCN": {},
    "GraphSAGE": {"norm": "layer"},
    "GIN": {"norm": "batch"},
    "GAT": {"v2": True, "heads": 2},
    "PNA": {
        "aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"], "deg": torch.arange(6),
    },
    "EdgeCNN": {},
}  # fmt: skip

geometric_models: list[Case] = [
    row("torch_geometric", name, functools.partial(_graph, name, settings), tags=("graph",))
    for name, settings in GEOMETRIC.items()
]


@library("torch_geometric", tags=("graph",))
def transformer() -> Made:
    """Attention over edges with features of their own, pooled to one vector a graph."""
    from torch_geometric.nn import TransformerConv, global_mean_pool

    return (
        _Pooled(TransformerConv(WIDTH, 8, heads=2, edge_dim=3, beta=True), global_mean_pool),
        (torch.randn(NODES, WIDTH), edges(), torch.randn(30, 3), torch.arange(NODES) // 4),
        {},
    )


class _Pooled(nn.Module):
    def __init__(self, layer: nn.Module, pool: Any) -> None:
        super().__init__()
        self.layer, self.pool = layer, pool

    def forward(self, nodes: Tensor, edges: Tensor, features: Tensor, graph: Tensor) -> Tensor:
        return self.pool(self.layer(nodes, edges, features).relu(), graph, 3)  # type: ignore[no-any-return]


@library("torch_geometric", tags=("graph",))
def relational() -> Made:
    """A matrix for each kind of edge, in bases."""
    from torch_geometric.nn import RGCNConv

    layer = RGCNConv(WIDTH, 4, num_relations=3, num_bases=2)
    return layer, (torch.randn(NODES, WIDTH), edges(), torch.randint(3, (30,))), {}


@library("torch_geometric", tags=("graph",))
def gated() -> Made:
    """A recurrent cell over messages."""
    from torch_geometric.nn import GatedGraphConv

    return GatedGraphConv(WIDTH, num_layers=3), (torch.randn(NODES, WIDTH), edges()), {}


@library("torch_geometric", tags=("graph",))
def schnet() -> Made:
    """Filters of distances within a molecule: its energy and its forces."""
    from torch_geometric.nn.models.schnet import InteractionBlock, ShiftedSoftplus

    return _Molecule(InteractionBlock(16, 8, 16, 3.0), ShiftedSoftplus()), (torch.randn(NODES, 3), edges()), {}


class _Molecule(nn.Module):
    """Energies[n, 16] of atoms at places[n, 3]."""

    def __init__(self, block: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(NODES, 16))
        self.block, self.act = block, act

    def forward(self, places: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        distance = (places[source] - places[target]).square().sum(-1).add(1e-6).sqrt()
        spread = torch.exp(-(distance[:, None] - torch.linspace(0, 3, 8)).square())
        return self.act(self.embedding + self.block(self.embedding, edges, distance, spread))  # type: ignore


@library("torch_geometric", tags=("graph",))
def aggregations() -> Made:
    """Softmax, power mean, median and standard deviation over groups, several at once."""
    from torch_geometric.nn import MultiAggregation, SoftmaxAggregation

    several = MultiAggregation(["mean", "max", "std", "median", SoftmaxAggregation(learn=True)])
    index = torch.arange(NODES) // 3
    return several, (torch.randn(NODES, WIDTH, requires_grad=True), index), {"dim_size": 4}


@library("egnn_pytorch", tags=("graph",))
def egnn() -> Made:
    """Features and places that move with the molecule."""
    from egnn_pytorch import EGNN

    return EGNN(dim=8, edge_dim=2, m_dim=8), (torch.randn(1, 6, 8), torch.randn(1, 6, 3), torch.randn(1, 6, 6, 2)), {}


@library("egnn_pytorch", tags=("graph",))
def nearest() -> Made:
    """Messages of the nearest neighbours only."""
    from egnn_pytorch import EGNN_Network

    network = EGNN_Network(num_tokens=5, num_positions=6, dim=8, depth=2, num_nearest_neighbors=3, m_dim=8)
    return network, (torch.randint(5, (1, 6)), torch.randn(1, 6, 3)), {}


@library("e3nn", tags=("graph",))
def linear() -> Made:
    """An equivariant linear layer with gates and a norm."""
    from e3nn import nn as enn
    from e3nn import o3

    gate = enn.Gate("8x0e", [torch.relu], "4x0e", [torch.sigmoid], "4x1o")
    layers = nn.Sequential(
        o3.Linear("4x0e + 4x1o", gate.irreps_in), gate, enn.BatchNorm(gate.irreps_out), o3.Norm("8x0e + 4x1o")
    )
    return layers, (torch.randn(6, 16, requires_grad=True),), {}


@library("e3nn", tags=("graph",))
def tensor_product() -> Made:
    """The full product of two representations with learned weights."""
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("2x0e + 2x1o", "1x0e + 1x1o", "2x0e + 2x1o + 1x2e")
    return product, (torch.randn(6, 8, requires_grad=True), torch.randn(6, 4, requires_grad=True)), {}


@library("e3nn", tags=("graph",))
def convolution() -> Made:
    """Messages along edges: spherical harmonics, a radial network, a tensor product."""
    from e3nn import nn as enn
    from e3nn import o3

    return _Convolution(o3, enn), (torch.randn(NODES, 8), torch.randn(NODES, 3), edges()), {}


class _Convolution(nn.Module):
    def __init__(self, o3: Any, enn: Any) -> None:
        super().__init__()
        self.harmonics = o3.SphericalHarmonics([0, 1, 2], normalize=True, normalization="component")
        self.product = o3.FullyConnectedTensorProduct(
            "2x0e + 2x1o", o3.Irreps.spherical_harmonics(2), "2x0e + 2x1o", shared_weights=False
        )
        self.radial = enn.FullyConnectedNet([6, 8, self.product.weight_numel], torch.nn.functional.silu)

    def forward(self, features: Tensor, places: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        offset = places[target] - places[source] + 1e-3
        spread = torch.exp(-(offset.norm(dim=1)[:, None] - torch.linspace(0, 3, 6)).square())
        message = self.product(features[source], self.harmonics(offset), self.radial(spread))
        return torch.zeros_like(features).index_add(0, target, message)


@library("e3nn", tags=("graph",))
def rotations() -> Made:
    """Angles to matrices, and Wigner's matrices of them."""
    from e3nn import o3

    def rotate(alpha: Tensor, beta: Tensor, gamma: Tensor) -> tuple[Tensor, ...]:
        matrix = o3.angles_to_matrix(alpha, beta, gamma)
        return matrix, o3.matrix_to_quaternion(matrix), o3.wigner_D(1, alpha, beta, gamma)

    return rotate, tuple(torch.rand(3, requires_grad=True) for _ in range(3)), {}
