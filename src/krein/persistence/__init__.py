"""Model files: an estimator, kernel or approximation in, one file out, and back. Nothing in a file is ever executed.

`container` is the file (bytes, checksums, written whole or not at all), `values` takes objects apart and puts them
together, `registry` is the fixed list of what those objects may be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from krein.errors import InputError, ModelFileError
from krein.kernels.precomputed import open_matrix
from krein.persistence.container import opened, write
from krein.persistence.registry import MODELS
from krein.persistence.values import Decoder, Encoder, MissingFunction, OtherMatrix

__all__ = ["FORMAT", "load", "save"]

# The number of the format is raised when older versions could not read what this one writes.
FORMAT = 3
SUFFIX = ".krein"


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    matrices: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to a file that `krein.load` reads: whole, or not at all.

    Parameters
    ----------
    model : estimator, Approximation, Factorization or kernel
        Fitted or not. An exact one is kept with what predictions need, an approximated one with its training objects,
        which `approximation_` refers to.
    path : str or path
        Ends in ".krein". A file that is there is replaced, once the new one is safely on disk. Of a symbolic link the
        target is replaced, and the link stays. A folder, device, FIFO or socket is an InputError.
    functions : dict of str to callable, optional
        Functions of your own that the model uses, a kernel for instance, under names. The file holds the names alone.
    matrices : dict of str to array or path of an .npy file, optional
        Matrices of `Precomputed` kernels that stay where they are, under names. The file holds the name, the shape and
        a checksum of some rows. A matrix that is not named here is written to the file whole, n² numbers.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> model = krein.SVC().fit(X, X[:, 0] > 0)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.krein"
    >>> krein.save(model, path)
    >>> np.array_equal(krein.load(path).predict(X), model.predict(X))
    True
    """
    target = Path(path)
    if target.suffix != SUFFIX:
        raise InputError(
            f"A model file's name ends in {SUFFIX!r}; got {target.name!r}. Call it {target.name + SUFFIX!r}."
        )
    if type(model) not in MODELS:
        kind = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise InputError(
            f"krein.save keeps krein's own estimators and kernels, an Approximation or a Factorization; got {kind}. Of "
            "a pipeline or a search save the krein model in it, as named_steps or best_estimator_; of a subclass, the "
            "model it extends."
        )
    named, version = _checked(functions, matrices), _version()
    encoder = Encoder(named)
    root = encoder.value(model)
    try:
        Decoder(encoder.arrays, named).run(encoder.entries)
    except Exception as error:  # what cannot be read is not written
        reason = str(error).rstrip(".") or type(error).__name__
        raise InputError(
            f"This {type(model).__name__} cannot be saved, as it could not be loaded: {reason}."
        ) from error
    header = {"format": FORMAT, "krein": version, "class": type(model).__name__, "root": root["ref"]}
    write(target, {**header, "entries": encoder.entries}, encoder.arrays)


def load(
    path: str | os.PathLike[str],
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    matrices: Mapping[str, Any] | None = None,
) -> Any:
    """Return the model that `krein.save` wrote to ``path``; nothing that the file contains is executed.

    Every byte is compared with its checksum. What is no model file, or is damaged, cut off or newer than this krein is
    a ModelFileError, a ValueError.

    Parameters
    ----------
    path : str or path
    functions, matrices : dict, optional
        What was given to `krein.save`, under the same names.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> model = krein.SVC().fit(X, X[:, 0] > 0)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.krein"
    >>> krein.save(model, path)
    >>> np.array_equal(krein.load(path).predict(X), model.predict(X))
    True
    """
    source = Path(path)
    named = _checked(functions, matrices)
    with opened(source) as file:
        header = file.header
        version = header.get("format")
        if type(version) is not int or version < 1:
            raise ModelFileError(f"{source} does not say which format it has.")
        if version > FORMAT:
            raise ModelFileError(
                f"{source} has format {version}, written by krein {str(header.get('krein'))[:40]}; this is krein "
                f"{_version()}, which reads up to format {FORMAT}. Install a newer one."
            )
        try:
            arrays = file.arrays()
            model = Decoder(arrays, named).run(header["entries"])[header["root"]]
        except (ModelFileError, MemoryError, OSError):
            raise
        except MissingFunction as missing:
            name, what, where = missing.args
            raise InputError(
                f"{source} uses a {what} of yours, {name!r}, which no file holds. Hand it in: "
                f"krein.load(path, {where}={{{name!r}: ...}})."
            ) from None
        except OtherMatrix as other:
            name, before, now = other.args
            raise InputError(
                f"{source} was saved beside a matrix {name!r}, {before}; what was handed in, {now}, holds other "
                "numbers. Hand in the matrix that the model was fitted on."
            ) from None
        except Exception as error:  # whatever it was, the file is the reason
            reason = str(error).rstrip(".") or type(error).__name__
            raise ModelFileError(f"{source} holds no model that could be put together: {reason}.") from error
    if type(model) not in MODELS or type(model).__name__ != header.get("class"):
        raise ModelFileError(f"{source} holds a {type(model).__name__} where its header says {header.get('class')!r}.")
    return model


def _checked(functions: Mapping[str, Callable[..., Any]] | None, matrices: Mapping[str, Any] | None) -> dict[str, Any]:
    named: dict[str, Any] = dict(functions or {})
    for name, function in named.items():
        if not isinstance(name, str) or not callable(function):
            raise InputError(f"functions must map names to callables; got {name!r}: {function!r}.")
    for name, given in (matrices or {}).items():
        S = open_matrix(given) if isinstance(given, str | os.PathLike) else given
        if not isinstance(name, str) or name in named or not isinstance(S, np.ndarray):
            raise InputError(
                "matrices must map names, none of them a function's, to arrays or paths of .npy files; got "
                f"{name!r}: {type(S).__name__}."
            )
        named[name] = S
    return named


def _version() -> str:
    return str(sys.modules["krein"].__version__)  # set after krein's modules are loaded; they do not import it
