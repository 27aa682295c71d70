"""
Your own similarity
===================

Words, compared by the pairs of letters they share: symmetric, from 0 to 1, and no inner product. Any function of two
collections, or of two objects, is a kernel; ``check_kernel`` tests what it promises.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

import krein
from krein.kernels import FromCallable, Traits


def shared_pairs(A: list[str], B: list[str]) -> np.ndarray:
    """|a and b| / min(|a|, |b|) of the sets of letter pairs."""
    left, right = ([set(itertools.pairwise(f"^{word}$")) for word in words] for words in (A, B))
    return np.array([[len(a & b) / min(len(a), len(b)) for b in right] for a in left])


# 400 words made of a stem and an ending.
stems = ["kernel", "spectr", "matri", "cluster", "landmark", "vector", "approxim", "eigen", "similar", "indefinit"]
middles = ["", "a", "o", "ist", "er", "al", "iz", "ul"]
words = [s + m + e for s, m, e in itertools.product(stems, middles, ["", "s", "ing", "ation", "ed"])]

# %%
# Declaring what it promises is optional; the report lists what was checked.
overlap = FromCallable(shared_pairs, Traits(stationary=False, psd=None, low=0.0, high=1.0, constant_diagonal=True))
print(krein.check_kernel(overlap, words, n_samples=100, random_state=0))

# %%
# There are no coordinates: words are clustered by their similarities to a few landmarks, and new words need only the
# landmarks of their cluster.
a = krein.approximate(words, overlap, n_blocks=5, rank=20, random_state=0)
f = a.factorization
print(f"{f}\nrelative error {a.error(random_state=0)}, {f.n_negative()} negative eigenvalues")
for word in ("kernelizer", "clusterings", "vectorial"):
    nearest = [words[i] for i in np.argsort(-a.kernel_rows([word])[0])[:3]]
    print(f"most like {word!r}: {', '.join(nearest)}")

# %%
krein.plotting.KernelMatrixDisplay.from_approximation(a, n_rows=400)
plt.show()
