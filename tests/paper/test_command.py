"""`krein reproduce`: what it says and keeps, whatever is missing, in its way or wrong with what is there."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import sklearn.datasets
from click.testing import CliRunner

from benchmarks import runner
from benchmarks.runner import parse_csv, read_csv, single_writer
from krein.cli import main
from paper import errors, reproduce
from paper import protocol as paper

pytestmark = pytest.mark.clone
KEY = ("dataset", "kernel", "part", "seed")
PIECES = ["cell", "published", "tabled", "mem", "rule"]  # of one cell of the errors


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The files of one run, of 200 rows that are generated."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KREIN_DATA", raising=False)
        patch.setattr(paper, "QUICK_ROWS", 200)
        forget()
        command = ["reproduce", "errors", "--datasets", "artificial1", "--kernels", "rbf", "--quick"]
        assert CliRunner().invoke(main, [*command, "--output", str(folder)]).exit_code == 0
        forget()
    return {name: (folder / "quick" / name).read_text(encoding="utf-8") for name in ("errors.csv", "errors.json")}


def forget():
    for cached in (paper.raw, paper.prepared, paper.matrix):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def calls(finished, monkeypatch, tmp_path):
    """No files, no network; and what was computed once is handed out again. The list tells what was asked for."""
    rows, asked = parse_csv(finished["errors.csv"]), []

    def replay(cell, part, seed, quick):
        asked.append((cell.kernel, part))
        return [{c: v for c, v in row.items() if c not in KEY} for row in rows if row["part"] == part]

    monkeypatch.delenv("KREIN_DATA", raising=False)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)
    monkeypatch.setattr(errors, "run", replay)
    monkeypatch.chdir(tmp_path)
    return asked


def refuse(*arguments, **options):
    raise OSError("no network")


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["reproduce", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def small(*more, code=0):
    return run(
        "errors", "--datasets", "artificial1", "--kernels", "rbf", "--quick", "--output", "out", *more, code=code
    )


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "quick"


def without_times(rows):
    return [{k: v for k, v in row.items() if k not in ("run", "seconds")} for row in rows]


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_a_quick_run_is_kept_apart_with_its_report_and_provenance(out, tmp_path):
    result = small()
    assert "Note: artificial1 is generated" in result.stdout
    assert "errors.csv and errors.md" in result.stdout
    assert sorted(p.name for p in out.iterdir()) == ["errors.csv", "errors.json", "errors.md", "index.html"]
    assert [p.name for p in out.parent.iterdir()] == ["quick"]
    assert list(dict.fromkeys(row["part"] for row in read_csv(out / "errors.csv"))) == PIECES
    assert "Not finished" not in (out / "errors.md").read_text(encoding="utf-8")
    (entry,) = json.loads((out / "errors.json").read_text())
    assert entry["command"] == "krein reproduce errors --datasets artificial1 --kernels rbf --quick"  # no folder
    assert list(entry["data"]) == ["artificial1"]
    assert re.fullmatch("[0-9a-f]{12}", entry["data"]["artificial1"])


def test_nothing_is_done_twice_unless_forced_and_then_only_what_is_asked_for(out, calls):
    small("--kernels", "rbf,elm")
    before = (out / "errors.csv").read_bytes()
    assert calls == [(kernel, part) for kernel in ("rbf", "elm") for part in PIECES]
    calls.clear()
    small()
    assert calls == []
    small("--force")
    assert calls == [("rbf", part) for part in PIECES]
    after = read_csv(out / "errors.csv")
    assert without_times(after) == without_times(parse_csv(before.decode()))
    assert {row["run"] for row in after if row["kernel"] == "elm"} == {"0"}


def test_report_only_computes_nothing_and_says_what_is_not_there(out, monkeypatch):
    small()
    table = (out / "errors.csv").read_bytes()
    (out / "errors.md").unlink()
    monkeypatch.setattr(errors, "run", None)  # whoever calls it fails
    monkeypatch.setattr(reproduce, "_check_data", None)
    small("--report-only", "--kernels", "rbf,tl1")
    assert (out / "errors.csv").read_bytes() == table
    assert "**Not finished**: 5 of 10 pieces;" in (out / "errors.md").read_text(encoding="utf-8")
    small("--report-only")
    assert "Not finished" not in (out / "errors.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", reproduce.EXPERIMENTS)
def test_no_column_has_its_name_twice(name):
    columns = import_module(f"paper.{name}").COLUMNS
    assert len(set(columns)) == len(columns)  # or its table could not be taken up again


@pytest.mark.parametrize("name", [name for name in reproduce.EXPERIMENTS if name != "figures"])
def test_a_report_of_nothing_is_one_and_says_so(name, tmp_path):
    told = run(name, "--report-only", "--output", "out", code=1).stderr
    assert f"no result is recorded in out/{name}.csv; run `krein reproduce {name}` first." in told
    text = (tmp_path / "out" / f"{name}.md").read_text(encoding="utf-8")
    assert re.search(r"\*\*Not finished\*\*: 0 of \d+ pieces; `krein reproduce " + name + "` goes on", text)
    assert not (tmp_path / "out" / f"{name}.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["errors", "--datasets", "iris"], "datasets must be one of 'spambase'"),
        (["errors", "--kernels", "rbf,linear"], "got 'linear'"),
        (["errors", "--kernels", ","], "kernels is empty; give some of rbf, elm, poly, tl1"),
        (["tables"], "'tables' is not one of"),
        ([], "Missing argument"),
        (["errors", "--seeds", "0"], "--seeds"),
        (["errors", "--n-jobs", "0"], "--n-jobs"),
    ],
)
def test_a_name_or_number_that_is_none_ends_with_2(arguments, words, tmp_path):
    assert words in " ".join(run(*arguments, code=2).stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_progress_shows_the_time_left_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    small_command = ["reproduce", "errors", "--datasets", "artificial1", "--kernels", "rbf", "--quick", "--output", "o"]
    main(small_command, standalone_mode=False)
    assert re.search(r"errors: .*5/5 \[\d\d:\d\d<\d\d:\d\d", screen.getvalue())
    assert "artificial1 rbf rule 0" in screen.getvalue()


# -- data --------------------------------------------------------------------------------------------------------------


def test_missing_data_are_told_before_any_work_with_what_can_be_had(tmp_path):
    result = run("errors", "--datasets", "artificial1,pendigit,gesture", code=2)
    assert result.stderr.startswith("Error: 2 of the data sets could not be had: pendigit, gesture.")
    assert result.stderr.count("Set KREIN_DATA") == 1
    assert "folder that holds pendigit.npz" in result.stderr
    assert result.stderr.rstrip().endswith("Or leave out what is missing: --datasets artificial1.")
    assert "--datasets artificial1,artificial2." in run("errors", "--datasets", "spambase", code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_what_needs_no_data_asks_for_none(monkeypatch):
    monkeypatch.setattr(reproduce, "_check_data", None)
    monkeypatch.setattr(runner, "work", lambda *arguments, **options: None)
    run("costs", "--quick")


def test_results_of_other_data_are_not_mixed_with_these(out, calls):
    small()
    entries = json.loads((out / "errors.json").read_text())
    entries[0]["data"]["artificial1"] = "0" * 12  # as if the authors' file had been there
    (out / "errors.json").write_text(json.dumps(entries))
    before = (out / "errors.csv").read_bytes()
    assert "errors.csv has results of another artificial1" in small(code=2).stderr
    assert (out / "errors.csv").read_bytes() == before
    calls.clear()
    small("--force")
    assert calls == [("rbf", part) for part in PIECES]
    small()  # now they are the same
    assert len(calls) == len(PIECES)


# -- what is wrong with what is there ----------------------------------------------------------------------------------


def torn(text):
    return text[: text.rindex(",") - 3]


def cut_in_the_last_number(text):
    return text[:-3]


def header_changed(text):
    return text.replace("method", "way", 1)


def older_with_more_columns(text):
    return "\n".join(line + ",1" for line in text.splitlines()) + "\n"


def more_values_in_one_line(text):
    return text.rstrip("\n") + ",1,2\n"


def a_run_nobody_knows(text):
    return re.sub(r"\n0,", "\n7,", text)


DAMAGE = [torn, cut_in_the_last_number, header_changed, older_with_more_columns, more_values_in_one_line,
          a_run_nobody_knows]  # fmt: skip


@pytest.mark.parametrize(
    "damage", [*DAMAGE, "no json", "no json text", "bytes"], ids=lambda d: getattr(d, "__name__", d)
)
def test_a_damaged_table_is_refused_and_left_as_it_is_and_force_sets_it_aside(damage, finished, out):
    out.mkdir(parents=True)
    content = (damage(finished["errors.csv"]) if callable(damage) else finished["errors.csv"]).encode()
    content = b"\xff\xfe" + content if damage == "bytes" else content
    (out / "errors.csv").write_bytes(content)
    if damage != "no json":
        (out / "errors.json").write_text("[{" if damage == "no json text" else finished["errors.json"])
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    for options in ((), ("--report-only",)):
        told = small(*options, code=2).stderr
        assert re.match(r"Error: .*errors\.csv .*run with --force", told)
        assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    result = small("--force")
    assert "It is errors.csv.old1 now." in result.stdout
    assert (out / "errors.csv.old1").read_bytes() == content
    assert [(row["part"], row["run"]) for row in read_csv(out / "errors.csv")][::10] == [("cell", "0"), ("rule", "0")]


def test_one_experiment_that_cannot_be_had_does_not_stop_the_others(out, tmp_path):
    out.mkdir(parents=True)
    (out / "bounds.csv").write_text("run,what\n0,else\n")
    options = ["--datasets", "artificial1", "--kernels", "rbf", "--quick", "--output", "out"]
    result = run("bounds", "errors", *options, code=1)
    assert result.stderr.splitlines()[-1].startswith("Error: bounds: bounds.csv has no bounds.json beside it")
    assert len(read_csv(out / "errors.csv")) == 13
    assert (out / "bounds.csv").read_text() == "run,what\n0,else\n"


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_goes_on(out):
    small()
    before = (out / "errors.csv").read_bytes()
    with single_writer(out / "errors.csv"):
        told = small("--force", code=2).stderr
        assert told.startswith("Error: Another run is writing out/quick/errors.csv. Wait until it has ended")
        small("--report-only")  # it writes no table
        run("errors", "--datasets", "artificial1", "--kernels", "rbf", "--quick", "--output", "elsewhere")
    assert (out / "errors.csv").read_bytes() == before
    small()
    assert not list(out.glob(".*"))


def test_a_lock_left_behind_by_a_killed_run_stops_nobody(out):
    out.mkdir(parents=True)
    (out / ".errors.csv.lock").touch()
    small()
    assert not list(out.glob(".*"))


@pytest.mark.parametrize("late", [False, True])
def test_a_full_disk_is_told_and_takes_nothing_away(late, out, calls, finished, monkeypatch):
    """The disk is full at the first file, or only when two pieces have been kept."""
    left, original = [8 if late else 0], os.fsync  # a table is two files, and each time the folder

    def fsync(number):
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        original(number)

    monkeypatch.setattr(os, "fsync", fsync)
    told = small(code=2).stderr
    assert re.search(r"Error: out/quick/errors\.json could not be written: No space left.*run the same command", told)
    assert [p.name for p in sorted(out.iterdir())] == (["errors.csv", "errors.json"] if late else [])
    monkeypatch.setattr(os, "fsync", original)
    calls.clear()
    small()
    assert calls == [("rbf", part) for part in PIECES[2 * late :]]
    assert without_times(read_csv(out / "errors.csv")) == without_times(parse_csv(finished["errors.csv"]))


def test_a_folder_that_cannot_be_written_is_told_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "run", None)
    (tmp_path / "out").write_text("a file in the way")
    options = ["--datasets", "artificial1", "--quick"]
    told = run("errors", *options, "--output", str(tmp_path / "out" / "below"), code=2).stderr
    assert re.search(r"below/quick/errors\.csv could not be written: Not a directory.*--output", told)
    monkeypatch.setattr(type(tmp_path), "mkdir", lambda *a, **k: (_ for _ in ()).throw(PermissionError(13, "Denied")))
    assert "could not be written: Denied" in run("errors", *options, code=2).stderr


def test_ctrl_c_ends_with_130_and_keeps_what_is_finished(out, calls, monkeypatch):
    original = errors.run

    def interrupted(cell, part, seed, quick):
        if part == "mem":
            raise KeyboardInterrupt
        return original(cell, part, seed, quick)

    monkeypatch.setattr(errors, "run", interrupted)
    result = small(code=130)
    assert result.stderr.rstrip().endswith("Every finished piece is kept; the same command goes on from there.")
    assert {row["part"] for row in read_csv(out / "errors.csv")} == {"cell", "published", "tabled"}
    monkeypatch.setattr(errors, "run", original)
    calls.clear()
    small()
    assert calls == [("rbf", "mem"), ("rbf", "rule")]
    assert not list(out.glob(".*"))


def test_for_machines_there_is_one_list(out, monkeypatch):
    result = small("--json")
    (told,) = json.loads(result.stdout)
    assert "errors.csv and errors.md" in result.stderr
    files = [str(Path("out") / "quick" / f"errors.{end}") for end in ("csv", "json", "md")]
    assert (told["experiment"], told["files"]) == ("errors", files)
    assert (told["done"], told["pieces"], told["trouble"]) == (len(PIECES), len(PIECES), [])
    assert told["seconds"] >= 0
    assert "--json" not in json.loads((out / "errors.json").read_text())[0]["command"]

    def failing(cell, part, seed, quick):
        raise RuntimeError("no luck")

    monkeypatch.setattr(errors, "run", failing)
    command = ["errors", "--datasets", "artificial1", "--kernels", "elm", "--quick", "--output", "out", "--json"]
    result = CliRunner().invoke(main, ["reproduce", *command])  # not by run: the traceback of a bug is on stderr
    assert result.exit_code == 1
    (told,) = json.loads(result.stdout)
    assert (told["done"], told["pieces"]) == (0, len(PIECES))
    assert "no luck" in told["trouble"][0]
