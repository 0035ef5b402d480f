"""Differential equations, Gaussian processes, flows, probabilistic programs, optimal transport."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.case import Made
from assay.suites.libraries.row import library


class Field(nn.Module):
    """The derivative of a state in time: field(t, y[n, 3]) -> [n, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, time: Tensor, state: Tensor) -> Tensor:
        return self.layers(state) * (1 + 0.1 * time)  # type: ignore[no-any-return]


class Solved(nn.Module):
    """The states of a field at several times."""

    def __init__(self, solve: Any, **settings: Any) -> None:
        super().__init__()
        self.field, self.solve, self.settings = Field(), solve, settings

    def forward(self, state: Tensor, times: Tensor) -> Tensor:
        return self.solve(self.field, state, times, **self.settings)  # type: ignore[no-any-return]


def _states() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 3, requires_grad=True), torch.linspace(0, 1, 4)


@library("torchdiffeq", tags=("equation",))
def rk4() -> Made:
    """Steps of fixed size."""
    from torchdiffeq import odeint

    return Solved(odeint, method="rk4"), _states(), {}


@library("torchdiffeq", tags=("equation",))
def dopri5() -> Made:
    """Steps whose size depends on the data."""
    from torchdiffeq import odeint

    return Solved(odeint, method="dopri5", rtol=1e-3, atol=1e-3), _states(), {}


@library("torchdiffeq", tags=("equation",))
def adjoint() -> Made:
    """Gradients by an equation solved backwards."""
    from torchdiffeq import odeint_adjoint

    return Solved(odeint_adjoint, method="rk4"), _states(), {}


@library("torchsde", tags=("equation", "random"))
def euler() -> Made:
    """A stochastic equation with a Brownian path from the global stream."""
    import torchsde

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift, self.spread = nn.Linear(3, 3), nn.Linear(3, 3)

        def f(self, time: Tensor, state: Tensor) -> Tensor:
            return self.drift(state)  # type: ignore[no-any-return]

        def g(self, time: Tensor, state: Tensor) -> Tensor:
            return self.spread(state).sigmoid()  # type: ignore[no-any-return]

        def forward(self, state: Tensor, times: Tensor) -> Tensor:
            path = torchsde.BrownianInterval(0.0, 1.0, size=tuple(state.shape), entropy=7)
            return torchsde.sdeint(self, state, times, bm=path, method="euler", dt=0.25)  # type: ignore[no-any-return]

    return Equation(), _states(), {}


@library("torchcde", tags=("equation",))
def controlled() -> Made:
    """An equation controlled by a spline through the data."""
    import torchcde

    class Controlled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.initial, self.function = nn.Linear(2, 4), nn.Linear(4, 8)

        def field(self, time: Tensor, state: Tensor) -> Tensor:
            return self.function(state).tanh().unflatten(-1, (4, 2))  # type: ignore[no-any-return]

        def forward(self, path: Tensor) -> Tensor:
            spline = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(path))
            start = self.initial(spline.evaluate(spline.interval[0]))
            settings = {"method": "rk4", "adjoint": False}
            return torchcde.cdeint(spline, self.field, start, spline.interval, **settings)  # type: ignore[no-any-return]

    return Controlled(), (torch.randn(2, 5, 2),), {}


class _Loss(nn.Module):
    """The negative marginal likelihood of a Gaussian process."""

    def __init__(self, process: nn.Module, likelihood: Any, goal: Any, values: Tensor) -> None:
        super().__init__()
        self.process, self.likelihood, self.goal = process, likelihood, goal
        self.values = nn.Buffer(values)

    def forward(self, places: Tensor) -> Tensor:
        return -self.goal(self.process(places), self.values)  # type: ignore[no-any-return]


def _exact(kernel: Any, batch: int = 0) -> Made:
    import gpytorch

    places = torch.linspace(0, 1, 8)[:, None]
    values = torch.sin(6 * places[:, 0]) + 0.1 * torch.randn(8)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(places, values, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), kernel

        def forward(self, places: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(places), self.kernel(places))

    process = Process()
    goal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    return _Loss(process, likelihood, goal, values), (places,), {}


@library("gpytorch", modes=("train",), tags=("probability",))
def exact() -> Made:
    """The marginal likelihood of an exact process, as it is trained."""
    import gpytorch

    return _exact(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()))


@library("gpytorch", modes=("train",), tags=("probability",))
def exact_sum_of_kernels() -> Made:
    """A sum of a Matern and a periodic kernel."""
    import gpytorch

    return _exact(gpytorch.kernels.MaternKernel(nu=2.5) + gpytorch.kernels.PeriodicKernel())


@library("gpytorch", tags=("probability",))
def kernels() -> Made:
    """Kernels as matrices."""
    import gpytorch
    from gpytorch.kernels import MaternKernel, PolynomialKernel, RBFKernel, RQKernel, ScaleKernel

    class Kernels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kinds = nn.ModuleList(
                [ScaleKernel(RBFKernel(ard_num_dims=2)), MaternKernel(nu=1.5), RQKernel(), PolynomialKernel(power=2)]
            )

        def forward(self, first: Tensor, second: Tensor) -> list[Tensor]:
            return [kind(first, second).to_dense() for kind in self.kinds]

    assert gpytorch
    return Kernels(), (torch.randn(5, 2, requires_grad=True), torch.randn(4, 2)), {}


@library("gpytorch", tags=("probability",))
def variational() -> Made:
    """An approximate process with inducing points: the evidence bound."""
    import gpytorch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Process(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            points = torch.linspace(0, 1, 4)[:, None]
            super().__init__(VariationalStrategy(self, points, CholeskyVariationalDistribution(4)))
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.RBFKernel()

        def forward(self, places: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(places), self.kernel(places))

    process, likelihood = Process(), gpytorch.likelihoods.GaussianLikelihood()
    goal = gpytorch.mlls.VariationalELBO(likelihood, process, num_data=8)
    places = torch.linspace(0, 1, 8)[:, None]
    return _Loss(process, likelihood, goal, torch.sin(6 * places[:, 0])), (places,), {}


@library("normflows", tags=("probability",))
def real_nvp() -> Made:
    """Affine couplings with permutations: the forward divergence."""
    import normflows

    def network() -> Any:
        return normflows.nets.MLP([1, 8, 2], init_zeros=False)

    flows: list[Any] = []
    for _ in range(2):
        flows += [normflows.flows.AffineCouplingBlock(network()), normflows.flows.Permute(2, mode="swap")]
    model = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), flows)
    return _Called(model, "log_prob"), (torch.randn(6, 2),), {}


@library("normflows", tags=("probability",))
def spline() -> Made:
    """Autoregressive splines of rational quadratics."""
    import normflows

    flows = [normflows.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8)]
    model = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), flows)
    return _Called(model, "log_prob"), (torch.randn(6, 2),), {}


class _Called(nn.Module):
    """A method of a module as a module."""

    def __init__(self, inner: nn.Module, method: str) -> None:
        super().__init__()
        self.inner, self.method = inner, method

    def forward(self, *given: Tensor) -> Any:
        return getattr(self.inner, self.method)(*given)


@library("zuko", tags=("probability",))
def neural_spline() -> Made:
    """A conditional density by masked networks and splines."""
    import zuko

    return (
        _Density(zuko.flows.NSF(3, 2, transforms=2, hidden_features=(8,))),
        (torch.randn(5, 3), torch.randn(5, 2)),
        {},
    )


@library("zuko", tags=("probability",))
def masked_autoregressive() -> Made:
    """Affine transforms in both directions: a density, and points drawn back through their inverse."""
    import zuko

    return (
        _Density(zuko.flows.MAF(3, 2, transforms=2, hidden_features=(8,))),
        (torch.randn(5, 3), torch.randn(5, 2)),
        {},
    )


class _Density(nn.Module):
    def __init__(self, flow: Any) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, value: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        density = self.flow(context)
        return density.log_prob(value), density.transform.inv(value)


@library("pyro", tags=("probability",))
def transforms() -> Made:
    """Couplings and planar transforms over a base distribution."""
    from pyro.distributions import transforms as kinds

    parts = nn.ModuleList([kinds.affine_coupling(4, hidden_dims=[8]), kinds.planar(4), kinds.spline(4, count_bins=4)])
    return _Chain(parts), (torch.rand(6, 4, requires_grad=True),), {}


class _Chain(nn.Module):
    """The value behind several transforms, and the log determinant of all of them."""

    def __init__(self, parts: nn.ModuleList) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.zeros(value.shape[0])
        for part in self.parts:
            kind: Any = part
            moved = kind(value)
            change = kind.log_abs_det_jacobian(value, moved)
            total, value = total + (change.sum(-1) if change.dim() > 1 else change), moved
        return value, total


@library("geomloss", tags=("probability",))
def sinkhorn() -> Made:
    """The divergence of two clouds by optimal transport, and by a kernel."""
    from geomloss import SamplesLoss

    losses = SamplesLoss("sinkhorn", p=2, blur=0.1, backend="tensorized"), SamplesLoss("gaussian", backend="tensorized")
    first, second = torch.rand(6, 2, requires_grad=True), torch.rand(5, 2)
    return lambda x, y: [loss(x, y) for loss in losses], (first, second), {}
