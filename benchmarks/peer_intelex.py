"""The SVC of scikit-learn-intelex in its own process: python peer_intelex.py DATA.npz C GAMMA prints scores as JSON.

Run by bench_machines with the Python that KREIN_INTELEX names, so that it is no dependency of anything here.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
from sklearnex.svm import SVC


def main() -> None:
    path, C, gamma = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    with np.load(path) as held:
        X, y, X_new, y_new = (held[name] for name in ("X", "y", "X_new", "y_new"))
    model = SVC(C=C, gamma=gamma, cache_size=2000)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    begun = time.process_time()
    model.fit(X, y)
    fit_seconds = time.process_time() - begun
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    begun = time.process_time()
    predicted = model.predict(X_new)
    predict_seconds = time.process_time() - begun
    np.save(Path(path).with_name("predicted.npy"), predicted)
    print(
        json.dumps(
            {
                "fit_seconds": fit_seconds, "predict_seconds": predict_seconds, "peak_bytes": peak,
                "accuracy": float(np.mean(predicted == y_new)), "n_support": int(np.sum(model.n_support_)),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
