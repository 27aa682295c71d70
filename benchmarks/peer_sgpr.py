"""gpytorch's SGPR in a process of its own: python peer_sgpr.py DATA.npz POINTS STEPS prints its scores as JSON.

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


def main() -> None:
    path, points, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    with np.load(path) as held:
        X, y, X_new, y_new = (torch.tensor(held[name], dtype=torch.float32) for name in ("X", "y", "X_new", "y_new"))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    model = Sparse(X, y, likelihood, points)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    start = time.process_time()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -evidence(model(X), y)
        loss.backward()
        optimizer.step()
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
    mean, variance = torch.cat(means), torch.cat(variances)
    nlpd = 0.5 * (torch.log(2 * torch.pi * variance) + (y_new - mean) ** 2 / variance)
    rmse = torch.sqrt(((y_new - mean) ** 2).mean())
    print(json.dumps({"rmse": float(rmse), "nlpd": float(nlpd.mean()), "seconds": taken, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
