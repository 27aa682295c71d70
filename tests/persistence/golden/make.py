"""Write the golden files of the current format. Once a format is released its files are never written again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import krein

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from test_persistence import common_letters  # noqa: E402


def main() -> None:
    rng = np.random.default_rng(1)
    X, new = rng.standard_normal((40, 2)), rng.standard_normal((8, 2))
    labels = np.where(X[:, 0] > 0, "right", "left")
    words = ["".join(rng.choice(list("abcé"), rng.integers(1, 8))) for _ in range(40)]
    classifier = krein.SVC(
        kernel=krein.Normalized(krein.Polynomial() + 2.0 * krein.RBF()), n_blocks=2, rank=5, dtype="float32",
        class_weight={"left": 1.0, "right": 2.0}, random_state=0,
    ).fit(X, labels)  # fmt: skip
    of_words = krein.KernelRidge(kernel=common_letters, n_blocks=2, rank=3, random_state=0)
    of_words.fit(words, [float(len(word)) for word in words])
    process = krein.GaussianProcessRegressor(kernel="laplacian", n_blocks=2, rank=5, drop=1.0, random_state=0)
    process.fit(X, np.sin(X[:, 0]))
    kept = {
        "classifier": (classifier, new.tolist()),
        "words": (of_words, ["abc", "éé", "b"]),
        "process": (process, new.tolist()),
    }
    for name, (model, given) in kept.items():
        krein.save(model, HERE / f"v{krein.persistence.FORMAT}-{name}.krein", functions={"letters": common_letters})
        told = {"class": type(model).__name__, "new": given, "predicted": model.predict(given).tolist()}
        if hasattr(model, "decision_function"):
            told["decided"] = model.decision_function(given).tolist()
        (HERE / f"v{krein.persistence.FORMAT}-{name}.json").write_text(json.dumps(told) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
