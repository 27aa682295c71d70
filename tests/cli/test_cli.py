"""The command line: one table, two pictures, help with examples, and one sentence for a mistake."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import krein
from krein.cli import COMMANDS, choices, demo, main

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "made" / "on the way"
    return folder, CliRunner().invoke(main, ["demo", "--quick", "--seed", "1", "--output", str(folder)])


def test_the_demo_prints_its_table(run):
    _, result = run
    assert result.exit_code == 0, result.output
    for name, meaning, _ in demo.COLUMNS:
        assert name in result.stdout
        assert meaning in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    for kernel in ("RBF", "ELM", "SpherePolynomial", "TL1"):
        assert sum(line[:1] == [kernel] for line in lines) == 2
    assert "digits: 500 rows" in result.stdout
    assert "mixture: 1,000 rows" in result.stdout
    facts, _ = demo.compare(demo.mixture(1000, 1), krein.TL1(), 5, 10, 1)  # the seed and --quick
    shown = [form.format(**facts) for _, _, form in demo.COLUMNS]
    assert any(line[:-1] == shown[:-1] for line in lines)


def test_the_demo_shows_what_it_chose_by_itself(run):
    _, result = run
    assert "max_error=0.01" in result.stdout
    assert "target met" in result.stdout
    rows = [line for line in result.stdout.splitlines() if "float64" in line]
    assert any({"coarse", "refined"} & set(row.split()) for row in rows)
    assert rows[-1].split()[-3:] == ["kept", "<-", "chosen"]


def test_the_pictures_exist_and_show_something(run):
    import matplotlib.image

    folder, result = run
    assert sorted(path.name for path in folder.iterdir()) == ["kernel-matrix.png", "report.html", "spectrum.png"]
    for path in folder.glob("*.png"):
        assert str(path) in result.stdout
        pixels = matplotlib.image.imread(path)
        assert min(pixels.shape[:2]) > 300
        some = pixels[::3, ::3].reshape(-1, pixels.shape[2])
        assert len(np.unique(some, axis=0)) > 50


def test_the_demo_ends_with_a_report_and_says_where_it_is(run):
    folder, result = run
    assert str(folder / "report.html") in result.stdout
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert 'data-key="objects" data-value="250"' in text
    for part in ("accuracy", "indefinite", "corrections", "time"):
        assert f'<section id="{part}"' in text


def test_progress_does_not_go_to_standard_output(run):
    assert "step/s" not in run[1].stdout
    assert run[1].stderr == ""  # no terminal, no bar


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["demo", "--help"]])
def test_help_has_examples(arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert "krein demo" in result.output
    if "demo" in arguments:
        assert "krein demo --quick --output" in result.output
        for option in ("--output", "--seed", "--quick"):
            assert option in result.output


def test_the_version_is_told():
    assert CliRunner().invoke(main, ["--version"]).output.strip() == f"krein, version {krein.__version__}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--seed", "many"], "--seed"),
        (["demo", "--speed"], "--speed"),
        (["demonstrate"], "demonstrate"),
    ],
)
def test_a_mistake_in_the_arguments_ends_with_2(arguments, words):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_an_output_that_is_a_file_ends_with_2(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        result = CliRunner().invoke(main, ["demo", "--quick", "--output", str(output)])
        assert result.exit_code == 2
        assert "file" in result.stderr
        assert "Traceback" not in result.output


@pytest.mark.parametrize("kind", [krein.InputError, krein.KernelError, krein.IndefiniteError, ValueError])
def test_a_value_error_becomes_one_sentence_and_2(tmp_path, monkeypatch, kind):
    def refuse(*arguments):
        raise kind("n_blocks must be at most 3;\n  got 4.")

    monkeypatch.setattr(demo, "compare", refuse)
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr == "Error: n_blocks must be at most 3; got 4.\n"


def test_a_bug_is_not_hidden(tmp_path, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(demo, "compare", fail)
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path)])
    assert isinstance(result.exception, RuntimeError)


def test_without_matplotlib_the_demo_names_the_extra_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(demo, "compare", None)
    result = CliRunner().invoke(main, ["demo", "--output", str(tmp_path)])
    assert result.exit_code == 2
    assert "krein[plot]" in result.stderr


def test_progress_is_shown_on_a_terminal(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(
        demo,
        "compare",
        lambda data, kernel, *_: ({"data": data.name, "kernel": type(kernel).__name__}, {"shared": None}),
    )
    monkeypatch.setattr(demo, "choose", lambda *_: (None, {}))
    monkeypatch.setattr(demo, "draw", lambda *_: {})
    monkeypatch.setattr(demo, "report", lambda *_: None)
    monkeypatch.setattr(sys, "stderr", screen)
    main(["demo", "--json", "--output", str(tmp_path)], standalone_mode=False)
    assert "kernels:" in screen.getvalue()
    assert "0/8" in screen.getvalue()


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.clone] * (n == "reproduce")) for n in COMMANDS])
def test_help_of_a_command_does_not_wait_for_scikit_learn(name):
    code = (
        f"import sys; from krein.cli import main; main(['{name}', '--help'], standalone_mode=False); "
        "sys.exit(' '.join(m for m in ('sklearn', 'scipy', 'numpy') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert f"krein {name} " in done.stdout


def test_the_choices_of_the_options_are_those_of_the_packages():
    from krein.tables import encoding, model, reading
    from paper import command, protocol, reproduce

    assert (choices.FORMATS, choices.SCALES, choices.TASKS) == (reading.FORMATS, encoding.SCALES, model.TASKS)
    assert (choices.MACHINES, choices.KERNELS) == (model.MACHINES, model.KERNELS)
    assert (command.DATASETS, command.KERNELS) == (protocol.DATASETS, protocol.KERNELS)
    assert tuple(reproduce.EXPERIMENTS) == command.EXPERIMENTS
