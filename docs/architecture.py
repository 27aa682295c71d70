"""Draws docs/images/architecture.svg, the rooms of krein, from the import contract in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
BESIDE = "paper | benchmarks"
PURPOSES = {
    "paper": "the paper's experiments", "benchmarks": "measurements, one runner", "cli": "the command krein",
    "inspection": "how indefinite is it?", "persistence": "model files", "tables": "CSV and Parquet to rows",
    "plotting": "pictures", "estimators": "scikit-learn's contract", "choosing": "blocks, rank, storage type",
    "approximation": "objects to factorization", "solvers": "linear systems and duals", "factorization": "U M Uᵀ + s I",
    "preprocessing": "scaling per kernel", "kernels": "similarities, and what X is", "datasets": "data by name",
    "sources": "rows outside memory", "pieces": "visits to rows, checkpoints",
    "report": "HTML pages", "policy": "limits of decisions", "arrays": "types and seeds", "errors": "errors, warnings",
    "threads": "threads of tasks and BLAS", "display": "plotting's old name", "bounds": "public name",
    "truncation": "public name",
}  # fmt: skip
# Sizes in pixels: the picture, a layer, and the margin on the left that holds the arrow.
WIDTH, LAYER, GAP, MARGIN = 760, 44, 10, 60


def layers() -> list[list[str]]:
    """The rooms of each layer, highest first."""
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("\nlayers = [")[1].split("]")[0]
    found = [line.strip().strip('",') for line in contract.splitlines() if line.strip().startswith('"')]
    return [[room.strip() for room in layer.split("|")] for layer in [BESIDE, *found]]


def picture() -> str:
    """The SVG: one row of boxes per layer, and an arrow in the direction of imports."""
    rows = layers()
    height = len(rows) * (LAYER + GAP) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<path d="M 20 {GAP} V {height - 24}" stroke="#555555" stroke-width="2"/>',
        f'<path d="M 13 {height - 26} h 14 l -7 14 z" fill="#555555"/>',
        f'<text transform="translate(42 {height / 2:g}) rotate(-90)" text-anchor="middle" fill="#555555">'
        "imports</text>",
    ]
    for i, rooms in enumerate(rows):
        y, width = GAP + i * (LAYER + GAP), (WIDTH - MARGIN - GAP - (len(rooms) - 1) * GAP) / len(rooms)
        for j, room in enumerate(rooms):
            x = MARGIN + j * (width + GAP)
            fill = "#f3efe4" if i == 0 else "#e6eef7"
            lines += [
                f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{LAYER}" rx="5" fill="{fill}" stroke="#8899aa"/>',
                f'<text x="{x + width / 2:g}" y="{y + 18}" text-anchor="middle" font-weight="bold">{room}</text>',
                f'<text x="{x + width / 2:g}" y="{y + 35}" text-anchor="middle" fill="#444444">'
                f"{PURPOSES.get(room, '')}</text>",
            ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
