"""A kernel's own parameters in scikit-learn's searches: kernel__gamma, kernel__n, kernel__kernel__n."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import krein

WORDS = krein.datasets.families(90, n_families=4, n_classes=2, length=10, random_state=0)
X = np.random.default_rng(0).normal(size=(80, 3))
LABELS = (X[:, 0] > 0).astype(int)


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize(
    ("kernel", "name", "values", "data"),
    [
        (krein.RBF(gamma=1.0), "kernel__gamma", [1e-3, 0.5, 1e3], (X, LABELS)),
        (krein.Spectrum(1), "kernel__n", [1, 3, 9], (WORDS.X, WORDS.y)),
        (krein.Normalized(krein.Spectrum(2)), "kernel__kernel__n", [1, 2, 3], (WORDS.X, WORDS.y)),
        (krein.FromDistances(krein.EditDistance()), "kernel__scale", [1e-2, 5.0, 1e4], (WORDS.X, WORDS.y)),
        (krein.FromDistances(krein.EditDistance()), "kernel__transform", ["linear", "gaussian"], (WORDS.X, WORDS.y)),
    ],
)
def test_a_search_over_them_is_one_over_kernels(kernel: Any, name: str, values: list[Any], data: Any) -> None:
    objects, y = data
    machine = krein.SVC(kernel=kernel, correction="clip", random_state=0)
    found = GridSearchCV(machine, {name: values}, cv=3).fit(objects, y)
    path = name.split("__")[1:]

    def changed(value: Any) -> krein.Kernel:
        if len(path) == 2:
            return krein.Normalized(krein.Spectrum(value))
        return dataclasses.replace(kernel, **{path[0]: value})

    wanted = [cross_val_score(clone(machine).set_params(kernel=changed(v)), objects, y, cv=3).mean() for v in values]
    np.testing.assert_array_equal(found.cv_results_["mean_test_score"], wanted)
    assert found.best_estimator_.get_params()[name] == found.best_params_[name]
    assert machine.kernel is kernel  # kernels are values: the one handed in is as it was


def test_kernel_and_its_parameter_are_set_together_and_in_a_pipeline() -> None:
    machine = krein.SVC(kernel="rbf").set_params(kernel=krein.RBF(gamma=1.0), kernel__gamma=3.0, C=7.0)
    assert (machine.kernel, machine.C) == (krein.RBF(gamma=3.0), 7.0)
    piped = make_pipeline(krein.KernelRidge(kernel=krein.Spectrum(2))).set_params(kernelridge__kernel__blended=True)
    assert piped[-1].kernel == krein.Spectrum(2, blended=True)
    assert krein.KernelRidge(kernel=krein.Spectrum(4)).get_params()["kernel__n"] == 4
    assert clone(piped)[-1].kernel == piped[-1].kernel


def test_what_a_kernel_has_not_is_said() -> None:
    with pytest.raises(krein.InputError, match=r"no parameter 'm'; its parameters are: 'blended', 'n'"):
        krein.SVC(kernel=krein.Spectrum()).set_params(kernel__m=3)
    with pytest.raises(krein.InputError, match="no parameter 'n__deep'"):
        krein.Spectrum().with_params(n__deep=3)
    with pytest.raises(krein.InputError, match="whole number"):
        krein.Spectrum().with_params(n=0)
    assert krein.Spectrum(3).with_params() == krein.Spectrum(3)


@pytest.mark.parametrize(
    ("name", "shown"), [("sigmoid", "Sigmoid"), ("poly", "Polynomial"), ("laplacian", "Laplacian")]
)
def test_a_gamma_that_cannot_be_bound_names_the_kernel(name, shown):
    X = np.random.default_rng(0).standard_normal((60, 3)) * 1e155
    with pytest.raises(krein.InputError, match=rf"{shown}\(.*binds gamma"):
        krein.SVC(kernel=name).fit(X, X[:, 0] > 0.0)
