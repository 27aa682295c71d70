"""The report in a real browser: chromium, driven over its debugging pipe by the standard library alone.

axe-core's checks run where KREIN_AXE names its axe.min.js (npm pack axe-core); it is no part of this project.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import krein
from krein.errors import KreinWarning
from krein.tables.model import learn
from krein.tables.reading import Frame

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BINARY is None, reason="no chromium in the path")]
# chromium reads commands from descriptor 3 and answers on 4
LAUNCH = """import os, sys
r, w = (os.dup2(int(fd), place) for fd, place in zip(sys.argv[1:3], (61, 62)))
os.dup2(r, 3), os.dup2(w, 4)
os.execv(sys.argv[3], sys.argv[3:])"""
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-dev-shm-usage", "--remote-debugging-pipe")  # fmt: skip


class Browser:
    """One tab: commands as calls, what it reports as ``events``."""

    def __init__(self, folder):
        theirs, self.out = os.pipe()
        self.back, answers = os.pipe()
        arguments = [
            sys.executable,
            "-c",
            LAUNCH,
            str(theirs),
            str(answers),
            BINARY,
            *FLAGS,
            f"--user-data-dir={folder}",
        ]
        self.process = subprocess.Popen(arguments, pass_fds=(theirs, answers), stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(answers)
        self.number, self.held, self.events, self.session = 0, b"", [], None
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        data = json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        while (answer := self.read()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def read(self):
        while b"\0" not in self.held:
            assert select.select([self.back], [], [], 120)[0], "the browser does not answer"
            got = os.read(self.back, 2**20)
            assert got, "the browser is gone"
            self.held += got
        one, self.held = self.held.split(b"\0", 1)
        return json.loads(one)

    def js(self, code):
        answer = self("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path, width=1280, dark=False, still=False):
        """Load the page; return the seconds it took."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
        features = {"prefers-color-scheme": "dark" if dark else "light"}
        features |= {"prefers-reduced-motion": "reduce" if still else "no-preference"}
        self("Emulation.setEmulatedMedia", features=[{"name": k, "value": v} for k, v in features.items()])
        self.events.clear()
        begin = time.perf_counter()
        self("Page.navigate", url=path.as_uri())
        while not self.told("Page.loadEventFired"):
            self.events.append(self.read())
        return time.perf_counter() - begin

    def told(self, *methods):
        return [event["params"] for event in self.events if event.get("method") in methods]

    def press(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            self("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code or 0)

    def point(self, selector):
        """Move the mouse to the middle of an element, once the page has come to rest there."""
        x, y = self.js(f"""(async () => {{
          const element = document.querySelector({json.dumps(selector)});
          element.scrollIntoView({{ block: "center", behavior: "instant" }});
          for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
          const box = element.getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        self("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def close(self):
        self.session = None
        self("Browser.close")
        self.process.wait(30)
        os.close(self.out)
        os.close(self.back)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(float)
    frame = Frame(("a", "b", "c", "d", "side"), (*X.T, y))
    asked = {"kernel": "sigmoid", "coef0": -1.0, "n_blocks": 5, "rank": 20}
    with pytest.warns(KreinWarning):
        model = learn(frame, "side", folds=3, machine="ridge", scale="none", parameters=asked)
    found = krein.inspect(X, model.estimator.approximation_.kernel, y, max_evaluations=200_000, random_state=0)
    return found.report(tmp_path_factory.mktemp("page") / "report.html", model, title="<A> title & more")


@pytest.fixture(scope="module")
def exact(tmp_path_factory) -> Path:
    """Of a matrix of rank 3: some errors are 0, and their axis has powers of ten."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    return krein.inspect(X, krein.Linear(), random_state=0).report(tmp_path_factory.mktemp("page") / "exact.html")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_at_once_without_a_complaint_or_a_request(browser, page, width, dark):
    seconds = browser.open(page, width, dark)
    print(f"{page.stat().st_size / 1e3:.0f} kB, opened in {seconds:.2f} s")
    assert page.stat().st_size < 6e6
    assert seconds < 2.0
    assert browser.told("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []
    requests = [event["request"]["url"] for event in browser.told("Network.requestWillBeSent")]
    assert [url for url in requests if not url.startswith("data:")] == [page.as_uri()]
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    assert browser.js("document.title") == "<A> title & more"


def test_a_request_would_be_seen_and_refused(browser, page, tmp_path):
    spoilt = tmp_path / "spoilt.html"
    text = page.read_text(encoding="utf-8").replace("</main>", '<img alt="" src="other.png"></main>')
    spoilt.write_text(text, encoding="utf-8")
    browser.open(spoilt)
    assert any("Content Security Policy" in json.dumps(event) for event in browser.told("Log.entryAdded"))


OVERLAPS = """(async () => {
  const out = [];
  let texts = 0;
  for (const figure of document.querySelectorAll('.chart')) {
    const svg = figure.querySelector('.plot svg'), frame = svg.getBoundingClientRect();
    const buttons = [...figure.querySelectorAll('.tools button')];
    for (const button of buttons.length ? buttons : [null]) {
      if (button) button.click();
      const layer = [...svg.querySelectorAll('g[data-view]')].find(g => !g.hasAttribute('hidden'));
      const seen = [...layer.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
      texts += seen.length;
      const where = figure.id + ' ' + layer.dataset.view + ': ';
      seen.forEach(([text, a], i) => {
        if (a.left < frame.left - 1 || a.right > frame.right + 1) out.push(where + text + ' leaves the chart');
        for (const [other, b] of seen.slice(0, i)) {
          const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
          if (across > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5)
            out.push(where + text + ' lies on ' + other);
        }
      });
      const marks = layer.querySelectorAll('.da').length, spots = layer.dataset.spots.split(' ').length;
      if (marks && marks !== spots) out.push(where + (marks - spots) + ' marks are no points');
    }
  }
  return [texts, out];
})()"""


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["page", "exact"])
def test_no_text_of_a_chart_lies_on_another_and_no_mark_looks_like_a_point(browser, request, width, name):
    browser.open(request.getfixturevalue(name), width)
    texts, found = browser.js(OVERLAPS)
    assert texts > 30
    assert found == []


def test_a_table_that_goes_on_to_the_right_says_so(browser, page):
    state = """[...document.querySelectorAll('.scroll')].filter(e => e.checkVisibility()).map(
      e => [e.scrollWidth > e.clientWidth + 2, getComputedStyle(e.querySelector('caption'), '::after').content])"""
    said = set()
    for width in (360, 1280):
        browser.open(page, width)
        browser.js("document.querySelectorAll('details').forEach(d => { d.open = true })")
        browser.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        for wide, text in browser.js(state):
            assert ("scroll sideways" in text) == wide
            said.add((width, wide))
    assert {(360, True), (1280, False)} <= said


def test_scales_switch(browser, page):
    browser.open(page)
    layers = "[...document.querySelectorAll('#chart-spectrum g[data-view]')].map(g => getComputedStyle(g).display)"
    assert browser.js(layers) == ["inline", "none"]
    browser.js("document.querySelector('#chart-spectrum .tools [data-view=Log]').click()")
    assert browser.js(layers) == ["none", "inline"]
    pressed = "[...document.querySelectorAll('#chart-spectrum .tools button')].map(b => b.getAttribute('aria-pressed'))"
    assert browser.js(pressed) == ["false", "true"]


def test_points_are_read_by_keyboard_and_by_pointing(browser, page):
    browser.open(page)
    state = """(plot => [plot.getAttribute('aria-valuenow'), plot.getAttribute('aria-valuetext'),
      document.querySelector('#chart-memory .readout').textContent])(document.querySelector('#chart-memory .plot'))"""
    labels = browser.js("""(figure => {
      const names = [...figure.querySelectorAll('th')].map(th => th.textContent);
      return [...figure.querySelectorAll('tbody tr')].map(tr => [...tr.cells].flatMap(
        (td, i) => td.textContent ? [names[i] + ' ' + td.textContent] : []).join(', '));
    })(document.querySelector('#chart-memory'))""")
    assert browser.js(state) == ["1", labels[0], labels[0]]
    assert labels[0].startswith("Blocks 1, Rank 16, Memory ")
    browser.js("document.querySelector('#chart-memory .plot').focus()")
    browser.press("ArrowRight")
    assert browser.js(state) == ["2", labels[1], labels[1]]
    browser.press("End")
    assert browser.js(state) == [str(len(labels)), labels[-1], labels[-1]]
    browser.press("ArrowRight")
    browser.press("Home")
    assert browser.js(state) == ["1", labels[0], labels[0]]
    browser.point("#chart-spectrum .plot")
    place = int(browser.js("document.querySelector('#chart-spectrum .plot').getAttribute('aria-valuenow')"))
    count = int(browser.js("document.querySelector('#chart-spectrum .plot').getAttribute('aria-valuemax')"))
    assert 0.3 * count < place < 0.6 * count  # the middle of the picture; the axis has its room on the left
    assert f"Place {place}, Eigenvalue " in browser.js("document.querySelector('#chart-spectrum .readout').textContent")


@pytest.mark.parametrize("width", [360, 1280])
def test_what_a_number_means_shows_on_hover_and_on_focus_and_goes(browser, page, width):
    browser.open(page, width)
    shown = "document.getElementById('tip').hidden ? null : document.getElementById('tip').textContent"
    assert browser.js(shown) is None
    for key in ("negative-share", "smallest", "full-bytes"):
        meaning = browser.js(f"document.getElementById('why-{key}').textContent")
        browser.point(f".n[data-key={key}]")
        assert browser.js(shown) == meaning
        box = browser.js(
            "(b => [b.left, b.top, b.right, b.bottom])(document.getElementById('tip').getBoundingClientRect())"
        )
        assert min(box[:2]) >= 0
        assert box[2] <= width
        assert box[3] <= 800
        browser.press("Escape", 27)
        assert browser.js(shown) is None
    browser("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    browser.js("scrollTo({top: 0, behavior: 'instant'})")
    for _ in range(40):  # by the tab key alone
        browser.press("Tab", 9)
        if browser.js("document.activeElement.matches('.n')"):
            break
    key = browser.js("document.activeElement.dataset.key")
    assert browser.js(shown) == browser.js(f"document.getElementById('why-{key}').textContent")


def test_cells_are_explained_by_their_column(browser, page):
    browser.open(page)
    browser.js("document.querySelector('#chart-memory details').open = true")
    browser.point("#chart-memory td:nth-child(4)")
    assert browser.js("document.getElementById('tip').textContent") == browser.js(
        "document.getElementById('why-error').textContent"
    )


def test_tables_sort(browser, page):
    browser.open(page)
    browser.js("document.querySelector('#chart-memory details').open = true")
    column = "[...document.querySelectorAll('#chart-memory tbody tr')].map(r => Number(r.cells[2].dataset.value))"
    before = browser.js(column)
    click = "document.querySelectorAll('#chart-memory .sort')[2].click()"
    browser.js(click)
    assert browser.js(column) == sorted(before)
    assert browser.js("document.querySelectorAll('#chart-memory th')[2].getAttribute('aria-sort')") == "ascending"
    browser.js(click)
    assert browser.js(column) == sorted(before, reverse=True)


def test_the_tab_key_gets_everywhere_and_out_again(browser, page):
    browser.open(page)
    stops = browser.js(
        "[...document.querySelectorAll('a, button, summary, [tabindex=\"0\"]')].filter(e => e.checkVisibility()).length"
    )
    browser.js("window.seen = new Set(); addEventListener('focusin', e => seen.add(e.target)); scrollTo(0, 0)")
    for _ in range(stops + 2):
        browser.press("Tab", 9)
    assert browser.js("seen.size") == stops


def test_colours_follow_the_system_and_the_switch(browser, page):
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, dark=True)
    dark = browser.js(paper)
    browser.open(page, dark=False)
    light = browser.js(paper)
    assert dark != light
    seen = []
    for _ in range(3):
        browser.js("document.getElementById('theme').click()")
        seen.append((browser.js("document.getElementById('theme').textContent"), browser.js(paper)))
    assert seen == [("Colours: light", light), ("Colours: dark", dark), ("Colours: system", light)]


CONTRAST = """(() => {
  const part = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = e => { for (; e; e = e.parentElement) {
    const found = numbers(getComputedStyle(e).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found; } return [255, 255, 255]; };
  const out = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || ['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
    const style = getComputedStyle(e), ink = light(numbers(e.tagName === 'text' ? style.fill : style.color));
    const paper = light(behind(e)), ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    out.push([ratio, e.outerHTML.slice(0, 80)]);
  }
  return out;
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_both_themes(browser, page, dark):
    browser.open(page, dark=dark)
    browser.js("document.getElementById('tip').hidden = false; document.getElementById('tip').textContent = 'text'")
    found = browser.js(CONTRAST)
    assert len(found) > 200
    assert min(found)[0] >= 4.5, min(found)


def test_nothing_moves_where_that_is_not_wanted(browser, page):
    speed = "getComputedStyle(document.querySelector('.cursor')).transitionDuration"
    browser.open(page, still=False)
    assert browser.js(speed) != "0s"
    browser.open(page, still=True)
    assert browser.js(speed) == "0s"
    assert browser.js("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


@pytest.mark.skipif("KREIN_AXE" not in os.environ, reason="set KREIN_AXE to axe-core's axe.min.js")
@pytest.mark.parametrize(("width", "dark"), [(360, True), (1280, False)])
def test_axe_finds_nothing(browser, page, width, dark):
    browser.open(page, width, dark)
    browser.js(Path(os.environ["KREIN_AXE"]).read_text(encoding="utf-8") + "; 1")
    browser.js(
        "document.querySelectorAll('details').forEach(d => { d.open = !d.closest('#chart-spectrum, #chart-before') })"
    )
    found = browser.js(
        "axe.run().then(r => [r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html]), r.passes.length])"
    )
    assert found[0] == []
    assert found[1] > 30
