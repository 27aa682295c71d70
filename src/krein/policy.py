"""The limits that decide how a fit goes, in one place. Ground: knows only the errors.

A number that changes what a user gets is a field of `Policy`; a number that only concerns rounding, tiles or speed
stays where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real

from krein.errors import InputError

__all__ = ["DEFAULT", "Policy"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits of the decision that every fit begins with (`krein.estimators.route.choose_route`).

    Pass one to a machine to move a limit: ``SVC(policy=krein.Policy(svm_rows=10_000))``. ``exact_rows`` comes first: a
    limit below it has no effect. The defaults come from measurements (`benchmarks/run.py curve`).

    Parameters
    ----------
    exact_rows : int
        Up to this many rows every machine uses the kernel's own matrix, also of a kernel that may be indefinite: its
        eigendecomposition costs n³ and tells how many eigenvalues are negative. `krein.approximate` with nothing given
        returns the exact matrix up to as many rows.
    svm_rows : int
        Up to this many rows SVC, SVR and OneClassSVM solve the dual of a psd kernel on vectors exactly.
    ridge_rows : int
        Up to this many rows ridge solves the linear system of a psd kernel exactly, by Cholesky factorization. It
        holds 4 n² bytes.
    process_rows : int
        Up to this many rows a Gaussian process conditions on all rows exactly, by Cholesky factorization. It holds
        8 n² bytes.
    process_learning_rows : int
        A Gaussian process learns its kernel's parameters on all rows up to this many, and on so many drawn at random
        beyond. An approximated one learns on half of them and on some neighbourhoods.
    components_rows : int
        Up to this many rows KernelPCA takes the leading eigenvectors of the own matrix of a psd kernel. It holds 8 n²
        bytes.
    clustering_rows : int
        Up to this many rows SpectralClustering cuts the own matrix of a psd kernel. It holds 8 n² bytes, and as many
        again where clusters are so well separated that the matrix is factored.
    eigen_rows : int
        Up to this many rows an SVM, or ridge with a given alpha, decomposes the own matrix of a kernel that may be
        indefinite, so that every correction can be chosen. Beyond it, and for ridge that chooses alpha, similarities
        are features (``correction_`` is "square"), which takes no eigendecomposition.
    matrix_seconds : float
        All n² similarities are evaluated where that takes no longer than this; the cost of one is measured first.
    matrix_memory : float
        Bytes of similarities that a fit holds at most: all n² of them, or those to landmarks, 4 bytes each.
    landmark_share : float
        Where not all similarities are affordable, at most this share of the objects are landmarks.
    fewest_landmarks : int
        Similarities are expensive if fewer landmarks than this are affordable within ``matrix_seconds``. Each object is
        then also compared with its neighbours.
    expensive_share, expensive_landmarks : float, int
        Where similarities are expensive this share of the objects are landmarks, but no more than this number.
    loo_rows : int
        ``alpha="loo"`` chooses alpha by leaving out rows of a sample of this size where the exact system is solved.
    feature_dimension : int
        A kernel whose feature space has at most this many dimensions (and an eighth of the rows) is factored exactly:
        one block of that rank.
    plain_shape : tuple of two int
        Blocks and rank of the approximation where there is no target to choose them by and nothing was given. One
        block with 512 landmarks among all rows still clusters with narrow kernels, where blocks of lower rank fail.
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
    expensive_share: float = 1 / 21
    expensive_landmarks: int = 288
    loo_rows: int = 2000
    feature_dimension: int = 400
    plain_shape: tuple[int, int] = (1, 512)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "plain_shape":
                if not (isinstance(value, tuple) and len(value) == 2 and all(_is_number(v) and v >= 1 for v in value)):
                    raise InputError(f"Policy.plain_shape must be two numbers, blocks and rank; got {value!r}.")
            elif not (_is_number(value) and value >= 0):
                raise InputError(f"Policy.{field.name} must be a number of at least 0; got {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


DEFAULT = Policy()
