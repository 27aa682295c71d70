"""The built site in a real browser: links, pictures, search, phone width, axe (`make docs`, then `make test-docs`).

Selenium drives the chromium of the system. axe-core is not part of the project: KREIN_AXE names its axe.min.js, which
`npm pack axe-core` brings.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import threading
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

SITE = Path(os.environ.get("KREIN_SITE", Path(__file__).parents[1] / "build" / "docs" / "html"))
BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
AXE = os.environ.get("KREIN_AXE")
# Pages of every kind: start, tour, guide, formulas, long tables, gallery, example, API, machine, kernel.
LOOKED_AT = (
    "index.html", "tour.html", "guides.html", "slow_svc.html", "corrections.html", "similarities.html", "method.html",
    "sklearn.html", "benchmarks.html", "paper.html", "gallery/index.html", "gallery/start/plot_1_two_moons.html",
    "api.html", "api/krein.SVC.html", "api/krein.RBF.html", "changelog.html",
)  # fmt: skip
PHONE, DESK = (390, 844), (1280, 900)

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="no built site; run `make docs`"),
]


class Found(HTMLParser):
    """Links, pictures and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag in ("a", "link") and (href := found.get("href")):
            self.links.append(href)
        if tag == "img":
            self.pictures.append(found)


@functools.cache
def page(path: Path) -> Found:
    return Found(path.read_text(encoding="utf-8"))


PAGES = [path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts] if SITE.is_dir() else []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(SITE).as_posix())
def test_links_and_pictures_of_a_page_lead_somewhere(path: Path) -> None:
    missing = []
    for link in [*page(path).links, *(picture["src"] or "" for picture in page(path).pictures)]:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file() or (
            target.suffix == ".html"
            and parts.fragment
            and urllib.parse.unquote(parts.fragment) not in page(target).anchors
        ):
            missing.append(link)
    assert missing == []
    assert [picture["src"] for picture in page(path).pictures if picture.get("alt") is None] == []


def test_the_site_has_a_gallery_with_pictures_and_a_page_for_every_public_name() -> None:
    import krein

    thumbs = [p for p in page(SITE / "gallery" / "index.html").pictures if "thumb" in (p["src"] or "")]
    assert len(thumbs) >= 15
    pages = {path.stem for path in (SITE / "api").glob("*.html")}
    modules = ("bounds", "datasets", "preprocessing", "report", "truncation")  # their functions have pages
    assert [name for name in krein.__all__ if name not in modules and f"krein.{name}" not in pages] == []
    assert all(any(stem.startswith(f"krein.{name}.") for stem in pages) for name in modules)


# -- in the browser ----------------------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site behind a server: search reads its index by scripts, which a browser forbids in files."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BINARY is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver (apt install chromium chromium-driver)")
    pytest.importorskip("selenium")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BINARY
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(120)
    yield driver
    driver.quit()


def look(browser: Any, url: str, size: tuple[int, int]) -> None:
    """Open a page in a window of a given size; phones narrower than a desktop's window need the device's metrics."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(url)


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_fits_a_phone_and_its_pictures_are_seen(browser: Any, address: str, name: str) -> None:
    look(browser, f"{address}/{name}", PHONE)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= PHONE[0]
    cut = browser.execute_script(  # text beyond the edge that no scrolling brings back
        "return [...document.querySelectorAll('.bd-article p, .bd-article dt, .bd-article dd')].filter(e =>"
        " e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('table, pre, .math'))"
        ".map(e => e.innerText.slice(0, 60))"
    )
    assert cut == []
    for picture in browser.execute_script(
        "return [...document.images].map(i => { i.loading = 'eager'; return [i.src, i.complete, i.naturalWidth]; })"
    ):
        assert not picture[1] or picture[2] > 0, picture[0]


@pytest.mark.parametrize("name", LOOKED_AT)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, address: str, name: str, theme: str) -> None:
    if AXE is None:
        pytest.skip("KREIN_AXE does not name axe.min.js (npm pack axe-core)")
    look(browser, f"{address}/{name}", DESK)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    # Colours change little by little, and would be judged on their way.
    browser.execute_script("document.getAnimations().forEach(a => a.finish())")
    browser.execute_script(Path(AXE).read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "axe.run(document, {resultTypes: ['violations']}).then(r => arguments[0](r.violations))"
    )
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    said = [
        f"{v['id']}: {node['html'][:150]} {node['failureSummary'][:200]}" for v in serious for node in v["nodes"][:3]
    ]
    assert said == []


def test_search_finds_a_class_and_a_guide(browser: Any, address: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    for query, wanted in (("KernelRidgeClassifier", "KernelRidgeClassifier"), ("duality gap", "good enough")):
        look(browser, f"{address}/search.html?q={urllib.parse.quote(query)}", DESK)
        read = functools.partial(browser.execute_script, "return document.querySelector('#search-results').innerText")
        WebDriverWait(browser, 60).until(lambda _, read=read: re.search(r"found|finished", read(), re.IGNORECASE))
        assert wanted in read()


def test_the_console_stays_empty(browser: Any, address: str) -> None:
    for name in LOOKED_AT[:4]:
        look(browser, f"{address}/{name}", DESK)
        said = [entry["message"] for entry in browser.get_log("browser")]
        assert [message for message in said if "127.0.0.1" in message and "favicon" not in message] == []
