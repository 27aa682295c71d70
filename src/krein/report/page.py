"""The page: sections in their order, a glossary of what they mention, styles and script inside. Nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from krein.errors import InputError
from krein.report import charts, fitted, inspected
from krein.report.charts import ChartData
from krein.report.markup import facts, plain
from krein.report.meanings import MEANINGS

__all__ = ["report", "write"]

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def report(
    inspection: Any = None,
    model: Any = None,
    *,
    title: str = "krein report",
    data: str | None = None,
    seconds: Mapping[str, float] | None = None,
) -> str:
    """Return one self-contained HTML page on an inspection, a fitted machine or model, or both.

    Parameters
    ----------
    inspection : Inspection, optional
        What `krein.inspect` returned.
    model : fitted estimator or Model, optional
    title : str
        Of the page.
    data : str, optional
        What the data are called.
    seconds : mapping, optional
        Further stages and what they took, reading the file for instance.
    """
    if inspection is None and model is None:
        raise InputError("A report needs an inspection, a fitted machine, or both; got neither.")
    if inspection is not None and not hasattr(inspection, "eigenvalues"):
        raise InputError(f"inspection must be what krein.inspect returns; got {type(inspection).__name__}.")
    fit = None if model is None else fitted.as_fitted(model)
    parts = [part for part in _parts(inspection, fit, data, dict(seconds or {})) if part[2]]
    body = "".join(
        f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{heading}</h2>{inside}</section>'
        for key, heading, inside in parts
    )
    links = [(key, heading) for key, heading, _ in parts] + [("glossary", "Every number explained")]
    menu = "".join(f'<li><a href="#{key}">{heading}</a></li>' for key, heading in links)
    name = plain(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<style>{_asset('page.css')}</style></head><body>"
        f'<a class="skip" href="#main">Skip to the findings</a><header><h1>{name}</h1>'
        '<button type="button" id="theme">Colours: system</button></header>'
        f'<nav aria-label="Sections"><ul>{menu}</ul></nav><main id="main" tabindex="-1">'
        '<p class="hint">Point at a number, or move to it with the tab key, to read what it means. In a chart the '
        f"arrow keys go from point to point.</p>{body}{_glossary(body)}</main>"
        "<footer><p>Made by krein. This page loads nothing: it works offline and sends nothing.</p></footer>"
        f'<div id="tip" role="tooltip" hidden></div><script>{_asset("page.js")}</script></body></html>\n'
    )


def write(path: Any, inspection: Any = None, model: Any = None, **options: Any) -> Path:
    """Write `report` of the same arguments to a file; return its path."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of a file in it, as {target / 'report.html'}.")
    target.write_text(report(inspection, model, **options), encoding="utf-8")
    return target


def _parts(found: Any, fit: fitted.Fitted | None, data: str | None, seconds: dict[str, float]) -> list[Any]:
    """(key, heading, content) of every section; those without content are left out."""
    first = ([] if fit is None else fitted.glance(fit)) + ([] if found is None else inspected.glance(found))
    lines = [("Data", plain(data))] if data else []
    lines += [] if found is None else inspected.data(found)
    used = None if fit is None else fit.correction
    heading = "Accuracy" if fit and fit.score and fit.score.name == "accuracy" else "Score"
    both = [] if found is None else [inspected.blocks(found)]
    notes = (() if found is None else found.notes) + (() if fit is None else fit.notes)
    return [
        ("glance", "At a glance", "<ul>" + "".join(f"<li>{line}</li>" for line in first) + "</ul>"),
        ("data", "Data and kernel", facts(lines) if lines else ""),
        (
            "accuracy",
            heading,
            "" if fit is None else fitted.score(fit),
        ),
        ("machine", "The machine", "" if fit is None else fitted.machine(fit)),
        ("indefinite", "How indefinite", "" if found is None else inspected.indefinite(found)),
        ("blocks", "Blocks", "".join([*both, "" if fit is None else fitted.blocks(fit)])),
        (
            "memory",
            "Memory and error",
            ("" if found is None else inspected.memory(found)) + ("" if fit is None else fitted.tried(fit)),
        ),
        ("corrections", "Corrections", "" if found is None else inspected.corrections(found, used)),
        ("ranks", "Rank", "" if found is None else inspected.ranks(found)),
        ("time", "Where the time went", _time(found, fit, seconds)),
        ("notes", "Notes", "<ul>" + "".join(f"<li>{plain(n)}</li>" for n in notes) + "</ul>" if notes else ""),
    ]


def _time(found: Any, fit: fitted.Fitted | None, seconds: dict[str, float]) -> str:
    """All stages, the slowest first."""
    known = list(seconds.items())
    if found is not None:
        inside = getattr(found, "stages", ())
        known += [(f"Inspecting: {name}", t) for name, t in inside] or [("Inspecting", found.seconds)]
    if fit is not None:
        known += fitted.stages(fit)
    known = sorted(((name, t) for name, t in known if t > 0.0), key=lambda stage: -stage[1])
    if not known:
        return ""
    columns = [("stage", "Stage"), ("seconds", "Seconds")]
    chart = ChartData("time", "Stages, the slowest first", "Seconds of wall time.", columns, known, "Stages")
    return charts.bars(chart, "seconds", log=True)


def _glossary(body: str) -> str:
    """The meanings that are referred to; what shows beside a number is read from here."""
    used = set(re.findall(r'aria-describedby="why-([\w-]+)"', body))
    lines = "".join(
        f'<div><dt>{plain(term)}</dt><dd id="why-{key}">{plain(meaning)}</dd></div>'
        for key, (term, meaning) in MEANINGS.items()
        if key in used
    )
    return (
        '<section id="glossary" aria-labelledby="glossary-title"><h2 id="glossary-title">Every number explained</h2>'
        f'<dl class="glossary">{lines}</dl></section>'
    )


def _asset(name: str) -> str:
    from importlib.resources import files  # not needed to import krein

    return files("krein.report").joinpath(name).read_text(encoding="utf-8")
