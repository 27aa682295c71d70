"""gpytorch's SGPR or SVGP in a process of its own: python peer_gpytorch.py METHOD DATA.npz POINTS STEPS prints scores.

METHOD is sgpr or svgp. A step of SGPR is one of Adam on all rows; a step of SVGP is an epoch of batches of BATCH rows.

Run by bench_gp with the Python that KREIN_GPYTORCH names, so that gpytorch is no dependency of anything here.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import gpytorch
import numpy as np
import torch

# Rows of a batch of SVGP.
BATCH = 1024


class Sparse(gpytorch.models.ExactGP):
    """Amplitude times a Gaussian kernel with a length scale per column, through inducing points that are learned."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor, likelihood: torch.nn.Module, points: int) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
        kernel.base_kernel.lengthscale = 2.0
        chosen = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:points]
        self.covar_module = gpytorch.kernels.InducingPointKernel(kernel, X[chosen].clone(), likelihood)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Variational(gpytorch.models.ApproximateGP):
    """The same prior, with a Gaussian distribution over the values at inducing points that is learned."""

    def __init__(self, X: torch.Tensor, points: int) -> None:
        chosen = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:points]
        inducing = X[chosen].clone()
        distribution = gpytorch.variational.CholeskyVariationalDistribution(points)
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, distribution))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
        self.covar_module.base_kernel.lengthscale = 2.0

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def learn_sgpr(X: torch.Tensor, y: torch.Tensor, likelihood: torch.nn.Module, points: int, steps: int) -> Sparse:
    model = Sparse(X, y, likelihood, points)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -evidence(model(X), y)
        loss.backward()
        optimizer.step()
    return model


def learn_svgp(X: torch.Tensor, y: torch.Tensor, likelihood: torch.nn.Module, points: int, steps: int) -> Variational:
    model = Variational(X, points)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    shuffled = torch.Generator().manual_seed(0)
    for _ in range(steps):
        for rows in torch.split(torch.randperm(len(X), generator=shuffled), BATCH):
            optimizer.zero_grad()
            loss = -bound(model(X[rows]), y[rows])
            loss.backward()
            optimizer.step()
    return model


def main() -> None:
    method, path, points, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with np.load(path) as held:
        X, y, X_new = (torch.tensor(held[name], dtype=torch.float32) for name in ("X", "y", "X_new"))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    start = time.process_time()
    model = {"sgpr": learn_sgpr, "svgp": learn_svgp}[method](X, y, likelihood, points, steps)
    taken = time.process_time() - start
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    model.eval()
    likelihood.eval()
    means, variances = [], []
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        for part in torch.split(X_new, 500):
            found = likelihood(model(part))
            means.append(found.mean)
            variances.append(found.variance)
    mean, std = torch.cat(means).numpy().tolist(), torch.cat(variances).sqrt().numpy().tolist()
    print(json.dumps({"mean": mean, "std": std, "seconds": taken, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
