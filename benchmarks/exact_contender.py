"""An exact SVC in a process of its own: python exact_contender.py CONTENDER DATA.npz C GAMMA prints figures as JSON.

Run by bench_exact and bench_machines. scikit-learn-intelex runs with the Python that KREIN_INTELEX names, so that it is
no dependency of anything here. The peers have a cache of 2000 MB, krein its default.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

MODULES = {"krein": "krein", "scikit-learn": "sklearn.svm", "scikit-learn-intelex": "sklearnex.svm"}
# A first fit on so many rows loads all code, and is not counted.
WARM_UP = 200
# Single rows are predicted for so many seconds.
ROW_SECONDS = 1.0


def main() -> None:
    contender, path, C, gamma = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    with np.load(path) as held:
        X, y, X_new, y_new = (held[name] for name in ("X", "y", "X_new", "y_new"))
    SVC = importlib.import_module(MODULES[contender]).SVC
    options = {"C": C, "gamma": gamma} | ({} if contender == "krein" else {"cache_size": 2000})
    SVC(**options).fit(X[:WARM_UP], y[:WARM_UP]).predict(X_new[:1])
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    begun = time.process_time()
    model = SVC(**options).fit(X, y)
    fit_seconds = time.process_time() - begun
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    begun = time.process_time()
    predicted = model.predict(X_new)
    predict_seconds = time.process_time() - begun
    taken: list[float] = []
    while sum(taken) < ROW_SECONDS and len(taken) < len(X_new):
        begun = time.process_time()
        model.predict(X_new[len(taken) : len(taken) + 1])
        taken.append(time.process_time() - begun)
    np.save(Path(path).with_name("predicted.npy"), predicted)
    print(
        json.dumps(
            {
                "fit_seconds": fit_seconds, "predict_seconds": predict_seconds,
                "row_seconds": float(np.median(taken)), "peak_bytes": peak,
                "accuracy": float(np.mean(predicted == y_new)), "n_support": int(np.sum(model.n_support_)),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
