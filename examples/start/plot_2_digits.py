"""
Handwritten digits, exact and approximated
==========================================

``krein.SVC`` has scikit-learn's parameters. With few rows it solves the same problem exactly; with ``n_blocks`` and
``rank`` it solves it on an approximated matrix, which takes memory in proportion to the rows.
"""

import matplotlib.pyplot as plt
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import krein

digits = krein.datasets.digits()
X_train, X_test, y_train, y_test = train_test_split(digits.X, digits.y, test_size=0.3, random_state=0)

theirs = SVC().fit(X_train, y_train)
exact = krein.SVC().fit(X_train, y_train)
small = krein.SVC(n_blocks=6, rank=40, random_state=0).fit(X_train, y_train)
print(f"scikit-learn     {theirs.score(X_test, y_test):.4f}")
print(
    f"krein            {exact.score(X_test, y_test):.4f}, the same labels: {(exact.predict(X_test) == theirs.predict(X_test)).all()}"
)
print(f"krein, 6 x 40    {small.score(X_test, y_test):.4f}")

# %%
# ``route_`` says how a fit went and why. The factorization says what it holds.
print(exact.route_.why)
print(small.approximation_.factorization)

# %%
# scikit-learn's own displays take krein's machines.
figure, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
ConfusionMatrixDisplay.from_estimator(small, X_test, y_test, ax=ax, colorbar=False, cmap="Blues")
ax.set_title("SVC on 6 blocks of rank 40")
plt.show()
