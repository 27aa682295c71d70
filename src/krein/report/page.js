"use strict";
// What a number means, points of a chart, tables that sort and that say where they go on, colours.

const tip = document.getElementById("tip");
let asked = null;

function explain(element, key) {
  const meaning = document.getElementById("why-" + key);
  if (!meaning) return;
  asked = element;
  tip.textContent = meaning.textContent;
  tip.hidden = false;
  place(element);
}
function place(element) {
  const at = element.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const below = at.bottom + 8 + own.height <= innerHeight;
  tip.style.left = Math.max(8, Math.min(at.left, innerWidth - own.width - 8)) + "px";
  tip.style.top = Math.max(8, below ? at.bottom + 8 : at.top - 8 - own.height) + "px";
}
function hush() { tip.hidden = true; asked = null; }
function keyOf(element) {
  if (element.matches("td")) return keyOf(element.closest("table").querySelectorAll(".sort")[element.cellIndex]);
  return element.dataset.key || (element.getAttribute("aria-describedby") || "").replace("why-", "");
}
const explained = ".n, .sort, td";
for (const [come, go] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
  document.addEventListener(come, event => {
    const element = event.target.closest && event.target.closest(explained);
    if (element && (come === "pointerover" || element.matches(":focus-visible"))) explain(element, keyOf(element));
  });
  document.addEventListener(go, event => { if (asked && event.target.closest(explained) === asked) hush(); });
}
document.addEventListener("click", event => {
  const element = event.target.closest(".n");
  if (element) explain(element, keyOf(element)); else if (!event.target.closest(explained)) hush();
});
document.addEventListener("keydown", event => { if (event.key === "Escape") hush(); });
addEventListener("scroll", () => {  // the tab key scrolls too: what it went to stays explained
  if (!asked) return;
  const at = asked.getBoundingClientRect();
  if (at.bottom < 0 || at.top > innerHeight) hush(); else place(asked);
}, { passive: true, capture: true });

for (const figure of document.querySelectorAll(".chart")) {
  const plot = figure.querySelector(".plot"), svg = plot.querySelector("svg"), cursor = svg.querySelector(".cursor");
  const readout = figure.querySelector(".readout"), names = [...figure.querySelectorAll("th")].map(th => th.textContent);
  const first = svg.querySelector("g[data-view]"), drawn = first.dataset.spots.split(" ").map(pair => pair !== "-");
  const rows = [...figure.querySelectorAll("tbody tr")].filter((_, i) => drawn[i]);  // in this order, however they are sorted
  let spots = [], at = 0, used = false;
  function read(layer) { spots = layer.dataset.spots.split(" ").filter(pair => pair !== "-").map(pair => pair.split(",").map(Number)); }
  function say() {
    const text = [...rows[at].cells].map((td, i) => td.textContent && names[i] + " " + td.textContent).filter(Boolean).join(", ");
    plot.setAttribute("aria-valuenow", at + 1);
    plot.setAttribute("aria-valuetext", text);
    readout.textContent = text;
  }
  function go(place) {
    at = Math.max(0, Math.min(rows.length - 1, place));
    used = true;
    cursor.setAttribute("cx", spots[at][0]);
    cursor.setAttribute("cy", spots[at][1]);
    say();
  }
  read(first);
  say();
  plot.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale, by = plot.dataset.nearest;
    let best = 0, least = Infinity;
    spots.forEach(([u, v], i) => {
      const gap = (by.includes("x") ? (u - x) ** 2 : 0) + (by.includes("y") ? (v - y) ** 2 : 0);
      if (gap < least) { least = gap; best = i; }
    });
    go(best);
  });
  plot.addEventListener("focus", () => { if (!used) go(0); });
  plot.addEventListener("keydown", event => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in steps) go(at + steps[event.key]);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(rows.length - 1);
    else return;
    event.preventDefault();
  });
  for (const button of figure.querySelectorAll(".tools button")) {
    button.addEventListener("click", () => {
      for (const other of figure.querySelectorAll(".tools button")) other.setAttribute("aria-pressed", other === button);
      for (const layer of svg.querySelectorAll("g[data-view]")) {
        const shown = layer.dataset.view === button.dataset.view;
        layer.toggleAttribute("hidden", !shown);
        if (shown) read(layer);
      }
      if (used) go(at);
    });
  }
}

for (const button of document.querySelectorAll(".sort")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)], numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
      return numbers ? x - y : x.localeCompare(y);
    };
    body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * order(a, b)));
  });
}

const watch = new ResizeObserver(entries => {
  for (const { target } of entries) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 2);
});
for (const box of document.querySelectorAll(".scroll")) watch.observe(box);

const theme = document.getElementById("theme"), words = { "": "system", light: "light", dark: "dark" };
function paint(name) {
  if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
  theme.textContent = "Colours: " + words[name];
}
theme.addEventListener("click", () => {
  const names = Object.keys(words), now = document.documentElement.dataset.theme || "";
  const next = names[(names.indexOf(now) + 1) % names.length];
  paint(next);
  try { localStorage.setItem("krein-theme", next); } catch { /* a page from a file may keep nothing */ }
});
try { const kept = localStorage.getItem("krein-theme"); if (kept in words) paint(kept); } catch { /* as above */ }
