"""The page of all reports."""

from __future__ import annotations

import re
from pathlib import Path

from paper import index
from paper.reproduce import EXPERIMENTS

RESULTS = Path(__file__).parents[2] / "results" / "paper"


def test_the_page_has_every_report_its_tables_and_pictures(tmp_path):
    (tmp_path / "errors.md").write_text("# Errors\n\n| a | b |\n| --- | ---: |\n| x | 1 < 2 |\n\n- **so**\n")
    (tmp_path / "errors.csv").write_text("run\n")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "figure1.png").write_bytes(b"png")
    (tmp_path / "figures.md").write_text("# Figures\n")
    (tmp_path / "figures.csv").write_text("run,file\n1,figure1\n1,lost\n")
    page = index.write(tmp_path, EXPERIMENTS, quick=False).read_text()
    assert "<td>x</td>" in page
    assert "1 &lt; 2" in page
    assert "<strong>so</strong>" in page
    assert 'src="figures/figure1.png"' in page
    assert "lost" not in page
    assert 'href="errors.csv"' in page
    for name in EXPERIMENTS:
        assert f'<section id="{name}">' in page
    assert page.count("(not run yet)") == len(EXPERIMENTS) - 2
    assert "quick" not in page


def test_a_quick_page_says_so(tmp_path):
    (tmp_path / "errors.md").write_text("# Errors\n")
    assert "A quick run, of few rows" in index.write(tmp_path, EXPERIMENTS, quick=True).read_text()


def test_the_committed_reports_name_no_targets_and_their_links_lead_somewhere():
    for path in RESULTS.glob("*.md"):
        assert "wanted" not in path.read_text(encoding="utf-8"), path
    page = (RESULTS / "index.html").read_text(encoding="utf-8")
    for target in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert (RESULTS / target).exists(), target
