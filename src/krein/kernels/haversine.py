"""The Haversine kernel: places on the Earth by their great-circle distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics.pairwise import haversine_distances

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.kernel import Traits
from krein.kernels.vectors import Rows, VectorKernel, as_vectors, constant_diagonal

__all__ = ["Haversine"]

# Mean radius of the Earth in kilometres.
EARTH_RADIUS = 6371.0088


@dataclass(frozen=True)
class Haversine(VectorKernel):
    """exp(-d / length_scale) of the great-circle distance d of two places, given as latitude and longitude in degrees.

    Rows are (latitude, longitude), in this order: latitudes from -90 to 90, longitudes from -180 to 180 or from 0 to
    360. It is psd on any data. (The Gaussian form, of d², is not.)

    Parameters
    ----------
    length_scale : float, default=1000.0
        Distance at which the similarity is 1 / e, in the unit of the radius, above 0.
    radius : float, default=6371.0088
        Radius of the sphere, above 0. The default is the Earth's in kilometres.

    Examples
    --------
    >>> import krein
    >>> paris, berlin, sydney = [48.86, 2.35], [52.52, 13.41], [-33.87, 151.21]
    >>> krein.Haversine(length_scale=1000.0)([paris, berlin, sydney]).round(3)
    array([[1.   , 0.416, 0.   ],
           [0.416, 1.   , 0.   ],
           [0.   , 0.   , 1.   ]])
    """

    length_scale: float = 1000.0
    radius: float = EARTH_RADIUS

    accepts_sparse: ClassVar[bool] = False
    positive: ClassVar[tuple[str, ...]] = ("length_scale", "radius")
    compared: ClassVar[type[Rows]] = Rows

    @property
    def traits(self) -> Traits:
        low = math.exp(-math.pi * self.radius / self.length_scale)  # of opposite places
        return Traits(stationary=False, psd=True, low=low, high=1.0, constant_diagonal=True)

    def rows(self, b: Any) -> Any:
        return super().rows(_places(b, self))

    def values(self, rows: Rows, a: Any) -> Array:
        if not (_places(a, self).shape[0] and rows.b.shape[0]):  # which scikit-learn refuses
            return np.empty((a.shape[0], rows.b.shape[0]), dtype=a.dtype)
        wide, other = rows.in_float64(a)
        values = haversine_distances(np.radians(other), np.radians(wide.b))
        values *= -self.radius / self.length_scale
        return np.asarray(np.exp(values, out=values), dtype=a.dtype)

    def diag(self, A: Any) -> Array:
        return constant_diagonal(_places(as_vectors(A, self), self), 1.0, self)


def _places(X: Any, asker: Haversine) -> Any:
    if X.shape[1] != 2:
        raise InputError(
            f"{asker!r} compares places: it needs 2 features, latitude and longitude in degrees; got {X.shape[1]}."
        )
    largest = np.abs(X).max(axis=0, initial=0.0)
    if largest[0] > 90.0 or largest[1] > 360.0:
        raise InputError(
            f"{asker!r} needs latitudes from -90 to 90 and longitudes from -180 to 180 or 0 to 360, in degrees; the "
            f"largest are {largest[0]:g} and {largest[1]:g}. Latitude is the first column: exchange them if needed."
        )
    return X
