"""The limits that decide how a fit goes, and the checks of the options all fits share. Ground: knows no other room.

A number that changes what a user gets is a field of `Policy`; a number that only concerns rounding, tiles or speed
stays where it is used.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from krein.errors import InputError, is_number, one_of, whole_number
from krein.threads import check_n_jobs

__all__ = ["DEFAULT", "Policy", "check_correction", "check_options", "check_parameters", "check_policy"]

# The negative part may count by at most this weight. What a larger one would do, a multiple of -K does as well.
LARGEST_WEIGHT = 1e6


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits of the decision that every fit begins with (`krein.estimators.route.choose_route`), and of its choices.

    Pass one to a machine or to `krein.approximate` to move a limit: ``SVC(policy=krein.Policy(svm_rows=10_000))``.
    ``exact_rows`` comes first: a limit below it has no effect. The defaults come from measurements
    (`benchmarks/run.py curve`). From ``default_error`` on the fields concern the choice of blocks, rank and type.

    Parameters
    ----------
    exact_rows : int
        Up to this many rows every machine uses the kernel's own matrix, also of a kernel that may be indefinite: its
        eigendecomposition costs n³ and tells how many eigenvalues are negative. `krein.approximate` with nothing given
        returns the exact matrix up to as many rows.
    svm_rows : int
        Up to this many rows SVC, SVR, NuSVC, NuSVR and OneClassSVM solve the dual of a psd kernel exactly; of objects
        without vectors, if all similarities are affordable.
    ridge_rows : int
        Up to this many rows ridge solves the linear system of a psd kernel exactly, by Cholesky factorization. It
        holds 4 n² bytes. KernelPCA computes pre-images in the same way.
    process_rows : int
        Up to this many rows a Gaussian process conditions on all rows exactly, by Cholesky factorization. It holds
        8 n² bytes. With more rows an exact process on this many random rows is used if it scores better.
    process_learning_rows : int
        A Gaussian process learns its kernel's parameters on all rows up to this many, and on so many drawn at random
        beyond. An approximated one learns on half of them and on some neighbourhoods.
    components_rows : int
        Up to this many rows KernelPCA takes the leading eigenvectors of the exact matrix of a psd kernel. It holds
        8 n² bytes.
    clustering_rows : int
        Up to this many rows SpectralClustering and SpectralEmbedding cut the exact matrix of a psd kernel. It holds
        8 n² bytes, and as many again where clusters are so well separated that the matrix is factored.
    eigen_rows : int
        Up to this many rows an SVM, or ridge with a given alpha, decomposes the exact matrix of a kernel that may be
        indefinite, so that every correction can be chosen. Beyond it, and for ridge that chooses alpha, similarities
        are features (``correction_`` is "square"), which takes no eigendecomposition.
    matrix_seconds : float
        All n² similarities are evaluated where that takes no longer than this; the cost of one is measured first.
    matrix_memory : float
        Bytes of similarities that a fit holds at most: all n² of them, or those to landmarks, 4 bytes each.
    landmark_share : float
        Where not all similarities are affordable, at most this share of the objects are landmarks.
    fewest_landmarks : int
        Similarities are expensive if fewer landmarks than this are affordable within ``matrix_seconds``. Then either a
        sample of the objects is compared whole and the others are left out, or each object is compared with fewer
        landmarks and with its neighbours.
    expensive_share, expensive_landmarks : float, int
        Where similarities are expensive this share of all n² is evaluated, but no more for each object than the second
        number and 100 others.
    loo_rows : int
        ``alpha="loo"`` chooses alpha by leaving out rows of a sample of this size where the exact system is solved.
    feature_dimension : int
        A kernel whose feature space has at most this many dimensions (and an eighth of the rows) is factored exactly:
        one block of that rank.
    plain_shape : tuple of two int
        Blocks and rank of the approximation where there is no target to choose them by and nothing was given. One
        block with 512 landmarks among all rows still clusters with narrow kernels, where blocks of lower rank fail.
    unsearched_shape : tuple of two int
        Above ``exact_rows`` rows: blocks and rank of `krein.approximate` with ``coupling="pairwise"`` or
        ``total_rank``, where they are not given. Nothing is searched for then.
    tuning_shape : tuple of two int
        ``gamma="tune"`` of an exact machine with more than ``exact_rows`` rows is scored on an approximation of these
        blocks and rank.
    landmark_block_rows, landmark_blocks : int
        ``coupling="landmark"`` has one block for this many rows, but no more blocks than the second number.
    landmark_direction_share, landmark_directions : float, int
        ``coupling="landmark"`` has this many directions per row in all blocks together, but no more than the second
        number. Learning costs their cube.
    default_error : float
        `krein.approximate` chooses blocks and rank for this relative Frobenius error where neither ``max_error`` nor
        ``max_memory`` is given.
    default_memory : float
        Bytes that a factorization may take where ``max_memory`` is not given: of `krein.approximate` without a
        ``max_error``, and of a machine that chooses by score, there with what predictions need.
    largest_core : int
        A choice by error proposes no more than this many directions in all blocks together. The spectrum of the core
        costs their cube.
    object_similarities, object_share, object_least : int, float, int
        A choice by error evaluates about this share of all similarities where objects have nothing else, with at least
        ``object_least`` and at most ``object_similarities`` per object.
    landmark_block_rank : int
        Highest rank of a block with ``coupling="landmark"``, where a rule chooses it. A direction takes three
        similarities per object.
    one_block_ranks : tuple of int
        Ranks of one block that are scored, ascending.
    coupled_directions : int
        Several coupled blocks that are scored have no more directions than this together.
    block_rows : tuple of int
        Mean rows of an uncoupled block (``drop=1``) that are scored, descending. The middle one comes first. Within a
        given ``max_memory``, half of the last one is scored too.
    block_rank, highest_block_rank : int
        Rank of the uncoupled blocks that are scored first, and the highest that is scored. A given ``max_memory``
        allows twice the highest.
    block_score_gap : float
        Uncoupled blocks are given up where their first score is lower than that of one block by more than this.
    score_regions, score_rows : int
        Uncoupled blocks are scored on about this many whole regions of the data with about this many rows together.
    held_out_rows : int
        At most this many rows, and a fourth of ``score_rows``, are held out to be scored.
    rows_per_direction, fewest_fitted_rows : int
        Coupled blocks are scored by a fit to this many rows per direction, and to no fewer rows than the second number.
    expensive_rows : int
        Replaces ``score_rows`` and ``fewest_fitted_rows`` where each similarity may be expensive: objects without
        coordinates, and functions of the user's own.
    score_standard_errors : float
        A score counts as good as the best if it is lower by at most this many standard errors of the difference.
    free_memory : float
        Among candidates as good as the best the smallest is taken. Bytes below this number do not count: with the
        default all are free, and the best score is taken.

    Examples
    --------
    >>> import krein
    >>> data = krein.datasets.mixture(300, n_features=4, n_classes=2, random_state=0)
    >>> type(krein.KernelRidgeClassifier().fit(data.X, data.y).route_).__name__
    'Exact'
    >>> policy = krein.Policy(exact_rows=100, ridge_rows=100)  # ridge is exact up to 100 rows
    >>> machine = krein.KernelRidgeClassifier(policy=policy, random_state=0).fit(data.X, data.y)
    >>> type(machine.route_).__name__
    'ByScore'
    """

    exact_rows: int = 2000
    svm_rows: int = 50_000
    ridge_rows: int = 25_000
    process_rows: int = 10_000
    process_learning_rows: int = 2000
    components_rows: int = 15_000
    clustering_rows: int = 15_000
    eigen_rows: int = 5000
    matrix_seconds: float = 60.0
    matrix_memory: float = 2.0**30
    landmark_share: float = 1 / 3
    fewest_landmarks: int = 1000
    expensive_share: float = 0.092
    expensive_landmarks: int = 288
    loo_rows: int = 2000
    feature_dimension: int = 400
    plain_shape: tuple[int, int] = (1, 512)
    unsearched_shape: tuple[int, int] = (10, 64)
    tuning_shape: tuple[int, int] = (16, 64)
    landmark_block_rows: int = 64
    landmark_blocks: int = 128
    landmark_direction_share: float = 0.36
    landmark_directions: int = 1536
    default_error: float = 0.02
    default_memory: float = 2.0**30
    largest_core: int = 8192
    object_similarities: int = 1024
    object_share: float = 0.2
    object_least: int = 256
    landmark_block_rank: int = 74
    one_block_ranks: tuple[int, ...] = (256, 512, 1024, 2048)
    coupled_directions: int = 2048
    block_rows: tuple[int, ...] = (1024, 512, 256, 128, 64, 32, 16)
    block_rank: int = 64
    highest_block_rank: int = 256
    block_score_gap: float = 0.03
    score_regions: int = 8
    score_rows: int = 8000
    held_out_rows: int = 2000
    rows_per_direction: int = 8
    fewest_fitted_rows: int = 8000
    expensive_rows: int = 1000
    score_standard_errors: float = 1.0
    free_memory: float = math.inf

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, tuple):
                numbers = isinstance(value, tuple) and len(value) > 0 and all(_is_number(v) and v >= 1 for v in value)
                if field.name.endswith("_shape") and not (numbers and len(value) == 2):
                    raise InputError(f"Policy.{field.name} must be two numbers, blocks and rank; got {value!r}.")
                if not numbers:
                    raise InputError(f"Policy.{field.name} must be a tuple of numbers of at least 1; got {value!r}.")
            elif not (_is_number(value) and value >= 0):
                raise InputError(f"Policy.{field.name} must be a number of at least 0; got {value!r}.")

    def landmark_shape(self, n: int) -> tuple[int, int]:
        """Blocks and rank of ``coupling="landmark"`` for n objects, where they are not given."""
        blocks = max(1, int(min(n // max(1, self.landmark_block_rows), self.landmark_blocks)))
        directions = int(min(self.landmark_direction_share * n, self.landmark_directions))
        return blocks, max(1, directions // blocks)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


DEFAULT = Policy()


def check_policy(policy: object) -> Policy:
    """Return the policy, the default one for None; anything else is refused."""
    if policy is None:
        return DEFAULT
    if not isinstance(policy, Policy):
        raise InputError(f"policy must be a krein.Policy, or None for the default one; got {policy!r}.")
    return policy


def check_correction(name: str, how: Any, choices: tuple[str, ...]) -> None:
    """Raise InputError, listing the choices, unless ``how`` is one of them or the weight of the negative part."""
    if isinstance(how, str) and how in choices:
        return
    if "clip" not in choices:
        one_of(name, how, choices)
    if not (is_number(how) and 0.0 <= how <= LARGEST_WEIGHT):
        known = ", ".join(map(repr, choices))
        raise InputError(
            f"{name} must be one of {known}, or a number from 0 to {LARGEST_WEIGHT:g}, by which the negative part "
            f"counts; got {how!r}."
        )


def check_options(asked: Mapping[str, Any], couplings: Iterable[str], types: Iterable[str]) -> dict[str, Any]:
    """Check the options that `krein.approximate` and all machines share; return those that are given.

    Nothing is drawn from ``random_state``.
    """
    given = {name: value for name, value in asked.items() if not (isinstance(value, str) and value == "auto")}
    one_of("coupling", asked["coupling"], couplings)
    for name in ("n_blocks", "rank"):
        if name in given:
            whole_number(name, given[name], 1, ' or "auto"')
    if "drop" in given and not (is_number(given["drop"]) and 0.0 <= given["drop"] <= 1.0):
        raise InputError(f'drop is a share of cluster pairs, from 0 to 1, or "auto"; got {given["drop"]!r}.')
    for name, unit in (("max_error", "a relative error"), ("max_memory", "a number of bytes")):
        limit = asked[name]
        if limit is not None and not (is_number(limit) and limit > 0.0):
            raise InputError(f"{name} must be {unit} above 0, or None; got {limit!r}.")
    if "dtype" in given:
        with contextlib.suppress(TypeError):  # what NumPy cannot read as a type is no choice either
            name = given["dtype"]
            given["dtype"] = name if isinstance(name, str) or name is None else np.dtype(name).name
        one_of("dtype", given["dtype"], ("auto", *types))
    if not isinstance(asked["verbose"], int | np.integer):
        raise InputError(f"verbose must be an integer, -1 for silence; got {asked['verbose']!r}.")
    check_n_jobs(asked["n_jobs"])
    state = asked["random_state"]
    small = isinstance(state, int | np.integer) and 0 <= state < 2**32  # a seed; to make its generator takes long
    if not (state is None or small or isinstance(state, np.random.Generator)):
        from sklearn.utils import check_random_state  # loaded with the machines, not with a Policy

        check_random_state(state)
    return given


def check_parameters(machine: Mapping[str, Any], couplings: Iterable[str], types: Iterable[str]) -> None:
    """Refuse a parameter of all machines that is out of range, also where a fit would not use it."""
    check_policy(machine["policy"])
    check_options(machine, couplings, types)
    if not is_number(machine["degree"]) or machine["degree"] < 0.0:
        raise InputError(f"degree must be a finite number of at least 0; got {machine['degree']!r}.")
    if not is_number(machine["coef0"]):
        raise InputError(f"coef0 must be a finite number; got {machine['coef0']!r}.")
