"""The site: `make docs` builds it into build/docs/html.

`KREIN_DOCS=quick` runs three examples of the gallery instead of all, for the checks that every change has to pass.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from pathlib import Path

from sphinx.application import Sphinx
from sphinx_gallery.sorting import ExplicitOrder

import krein

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # `paper` and `benchmarks` lie beside the package

project = "krein"
author = "the krein developers"
project_copyright = author
release = krein.__version__
version = ".".join(release.split(".")[:2])

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
]
root_doc = "index"
exclude_patterns = ["**/README.md", "gallery/*.ipynb", "gallery/*.py", "gallery/*.json", "gallery/*.zip"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold a function, which cannot be pickled
html_title = "krein"

# -- pages -------------------------------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# -- the API: one page for each public name ----------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
templates_path = ["_templates"]

# -- the gallery -------------------------------------------------------------------------------------------------------
QUICK = os.environ.get("KREIN_DOCS") == "quick"
warnings.filterwarnings("ignore", category=krein.KreinWarning)  # examples say in words what a warning would
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_\d_(two_moons|clip_flip_shift|report)" if QUICK else r"/plot_",
    "ignore_pattern": r"export\.py",
    "subsection_order": ExplicitOrder(
        ["../examples/start", "../examples/objects", "../examples/large", "../examples/matrix"]
    ),
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib",),
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "min_reported_time": 3600,
    "plot_gallery": True,
    "show_signature": False,
    "thumbnail_size": (400, 280),
    "reset_argv": lambda *_: [],
    "parallel": False,
    "write_computation_times": False,
}

# -- the look ----------------------------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["krein.css"]
html_js_files = ["krein.js"]
html_context = {"default_mode": "auto"}
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "krein", "alt_text": "krein, start page"},
    "show_nav_level": 1,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "tour": []}


# -- what lies beside docs/ --------------------------------------------------------------------------------------------


def bring_results(app: Sphinx) -> None:
    """Copy the reports of the benchmarks and of the paper's experiments into the site, with their pictures."""
    there = Path(app.srcdir) / "results"
    shutil.rmtree(there, ignore_errors=True)
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".md", ".png", ".svg"):
            place = there / path.relative_to(ROOT / "results")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    pages = sorted(path.relative_to(there).with_suffix("").as_posix() for path in there.rglob("*.md"))
    (there / "index.md").write_text(
        "# Result files\n\nEach is written by a command, which the [benchmark page](../benchmarks.md) names.\n\n"
        "```{toctree}\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```\n",
        encoding="utf-8",
    )


def mend_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links that lead out of docs/ where pages are read as files lead to pages of the site here."""
    text = re.sub(r"\]\(\.\./examples/(\w+/plot_\w+)\.py\)", r"](gallery/\1)", source[0])
    for before, after in (
        ("](../results/", "](results/"),
        ("{figure} ../results/", "{figure} results/"),
        ("](../examples)", "](gallery/index)"),
        ("](results/paper)", "](results/index.md)"),
        ("](../CONTRIBUTING.md", "](contributing.md"),
        ("](../CHANGELOG.md", "](changelog.md"),
        ("](../../docs/", "](../../"),
    ):
        text = text.replace(before, after)
    source[0] = text


def leave_out(app: Sphinx, what: str, name: str, *_: object) -> bool | None:
    """Leave out what scikit-learn adds to every estimator."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def plain_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are written for people: |x| is a norm, and coef_ a name, where reStructuredText has marks."""
    for i, line in enumerate(lines):
        line = re.sub(r":ref:`([^<`]+?)\s*<[^>]*>`", r"\1", line)  # scikit-learn's, which lead to its own site
        if line.lstrip().startswith((">>>", "...", "..")):
            lines[i] = line
            continue
        parts = re.split(r"(``.*?``|:\w+:`.*?`|`.*?`_?)", line)  # code and references stay as they are
        parts[::2] = [re.sub(r"(?<=\w)_(?!\w)", r"\\_", part).replace("|", r"\|") for part in parts[::2]]
        lines[i] = "".join(parts)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", plain_text, priority=900)  # after numpydoc
    app.connect("autodoc-skip-member", leave_out)
    app.connect("builder-inited", bring_results, priority=100)
    app.connect("source-read", mend_links)
