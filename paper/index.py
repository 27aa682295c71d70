"""One page for all experiments: the reports of a folder in, index.html out, with figures beside the tables.

The reports hold the paper's own numbers beside those measured here. What was not run yet is named as such.
"""

from __future__ import annotations

import html
from pathlib import Path

from markdown_it import MarkdownIt

from benchmarks.runner import read_csv
from krein.persistence.container import replacing

__all__ = ["write"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
td, th { padding: 2px 8px; border-bottom: 1px solid #ddd; white-space: nowrap; }
img { max-width: 100%; margin: 1rem 0; }
section { border-top: 2px solid #888; margin-top: 2.5rem; }
nav li { margin: 2px 0; }
"""


def write(folder: Path, experiments: dict[str, str], quick: bool) -> Path:
    """Write index.html of the reports in ``folder``; ``experiments`` are their names and what each is about."""
    convert = MarkdownIt("commonmark").enable("table").render
    links, sections = [], []
    for name, about in experiments.items():
        path = folder / f"{name}.md"
        there = path.exists()
        mark = "" if there else " (not run yet)"
        links.append(f'<li><a href="#{name}">{name}</a>: {html.escape(about)}{mark}</li>')
        if there:
            body = convert(path.read_text(encoding="utf-8")) + _files(folder, name)
        else:
            body = f"<h1>{name}</h1><p>Not run yet: <code>krein reproduce {name}</code>.</p>"
        sections.append(f'<section id="{name}">\n{body}\n</section>')
    size = "<p><b>A quick run, of few rows: it shows that everything works, and says nothing of the paper.</b></p>"
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>The paper, reproduced</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>The paper, reproduced</h1>\n"
        "<p>Heilig, Münch and Schleif, <i>Revisiting Memory Efficient Kernel Approximation: An Indefinite Learning "
        "Perspective</i> (AISTATS 2022). M0 is the exact kernel, M1 the paper's approximation, M2 the same after "
        "2|λmin| on its diagonal. Columns that are headed <i>paper</i> are the paper's own numbers.</p>\n"
        f"{size if quick else ''}<nav><ul>\n{chr(10).join(links)}\n</ul></nav>\n{chr(10).join(sections)}\n"
        "</body></html>\n"
    )
    target = folder / "index.html"
    with replacing(target) as file:
        file.write(page.encode())
    return target


def _files(folder: Path, name: str) -> str:
    """Pictures that the experiment made, and links to its table and its provenance."""
    pictures = ""
    if name == "figures" and (folder / "figures.csv").exists():
        names = [row["file"] for row in read_csv(folder / "figures.csv")]
        found = [stem for stem in names if (folder / "figures" / f"{stem}.png").exists()]
        pictures = "".join(
            f'<figure><img src="figures/{stem}.png" alt="{stem}"><figcaption>{stem}</figcaption></figure>'
            for stem in found
        )
    there = [f"{name}{end}" for end in (".csv", ".json") if (folder / f"{name}{end}").exists()]
    files = [f'<a href="{file}">{file}</a>' for file in there]
    return f"{pictures}<p>Table and provenance: {', '.join(files)}.</p>" if files else pictures
