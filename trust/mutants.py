"""Change one operator or number of the source at a time, and count the changes that the tests notice.

python trust/mutants.py --count 60 --seed 0 --out build/mutants.csv

A mutant is drawn at random from the modules in `TESTS`: a comparison or an arithmetic operator is exchanged, a number
is one more, True is False, a condition is negated. The tests of the module run in a copy of the folder, nearest first,
and stop at the first failure; a mutant on which they take longer than `LIMIT` is caught, too. Survivors are listed
with their line, to be read: some change nothing that can be seen.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/krein"
# Where the tests of a module lie, beside those in the folder of its room whose name holds its own.
TESTS: dict[str, tuple[str, ...]] = {
    "factorization/*.py": ("tests/factorization",),
    "factorization/pieces.py": ("tests/factorization", "tests/pieces/test_outside.py"),
    "approximation/pairwise.py": ("tests/approximation/test_couplings.py",),
    "approximation/shared.py": ("tests/approximation/test_couplings.py",),
    "solvers/*.py": ("tests/solvers",),
    "solvers/leave_one_out.py": ("tests/estimators/test_ridge.py",),
    "solvers/logistic.py": ("tests/estimators/test_logistic_regression.py",),
    "solvers/nu_svm.py": ("tests/estimators/test_nu_svm.py",),
    "solvers/polish.py": ("tests/solvers", "tests/estimators/test_svm.py"),
    "solvers/proxy.py": ("tests/estimators/test_proxy_svm.py",),
    "solvers/refine.py": ("tests/estimators/test_svm_refine.py",),
    "solvers/woodbury.py": ("tests/solvers", "tests/estimators/test_svm.py"),
}
# CPU seconds that the tests of a mutant may take.
LIMIT = 300
# Loaded once, before the processes of the mutants are forked.
PRELOADED = ("pandas", "scipy.stats", "sklearn.svm", "sklearn.utils.estimator_checks")
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.MatMult: ast.Add,
}  # fmt: skip


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes that can be changed and how; annotations, messages and `__all__` are left alone."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts = [getattr(node, name, None) for name in ("annotation", "returns")]
        parts += [node] if isinstance(node, ast.Raise | ast.Assert) else []
        parts += node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        skipped |= {id(inner) for part in parts if part is not None for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
            if not any(
                isinstance(part, ast.Constant | ast.JoinedStr)
                and not isinstance(getattr(part, "value", 0), int | float)
                for part in ast.walk(node)
            ):
                yield node, "operator"
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "comparison"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, "constant"
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node, "condition"


def mutate(node: ast.AST, how: str) -> None:
    if how == "operator":
        node.op = SWAPS[type(node.op)]()  # type: ignore[attr-defined]
    elif how == "comparison":
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[attr-defined]
    elif how == "constant":
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[attr-defined]
    else:
        node.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]


def mutants() -> list[tuple[str, int]]:
    """All mutants: a module, and the number of the change in it."""
    found = []
    for pattern in TESTS:
        for path in sorted((ROOT / SOURCE).glob(pattern)):
            name = str(path.relative_to(ROOT / SOURCE))
            n = sum(1 for _ in changes(ast.parse(path.read_text(encoding="utf-8"))))
            found += [(name, i) for i in range(n)]
    return sorted(set(found))


def tests_of(name: str) -> list[str]:
    """The paths of a module's tests, those that have its name first."""
    room, stem = name.split("/")[0], Path(name).stem
    own = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests" / room).glob(f"test_*{stem}*.py"))
    return list(dict.fromkeys([*own, *TESTS.get(name, TESTS.get(f"{room}/*.py", ()))]))


def caught(name: str, number: int, folder: Path) -> tuple[bool, int, str]:
    """Whether the tests notice the mutant, the line, and the changed line."""
    path = folder / SOURCE / name
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    node, how = list(changes(tree))[number]
    before, line = ast.unparse(copy.deepcopy(node)).splitlines()[0], node.lineno  # type: ignore[attr-defined]
    mutate(node, how)
    after = ast.unparse(node).splitlines()[0]
    try:
        path.write_text(ast.unparse(tree), encoding="utf-8")
        noticed = run(folder, tests_of(name)) != 0
    finally:
        path.write_text(text, encoding="utf-8")
    return noticed, line, f"{before} -> {after}"


def run(folder: Path, tests: list[str]) -> int:
    """Run the tests in a process that has loaded everything but krein; return its exit code, 0 if all pass."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            os.chdir(folder)
            sys.path[:0] = [str(folder / "src"), str(folder)]
            import pytest

            code = int(
                pytest.main(["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests])
            )
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants.csv")
    arguments = parser.parse_args()
    for module in PRELOADED:
        import_module(module)

    everything = mutants()
    drawn = random.Random(arguments.seed).sample(everything, min(arguments.count, len(everything)))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name, arguments.out.open("w", newline="") as file:
        folder = Path(name)
        for part in ("src", "tests", "benchmarks", "paper", "trust"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        if run(folder, ["tests/factorization/test_bounds.py"]) != 0:
            raise SystemExit("The tests of the source as it is fail, so nothing can be said of mutants.")
        table = csv.writer(file)
        table.writerow(("module", "line", "change", "caught"))
        seen = []
        for module, number in drawn:
            noticed, line, change = caught(module, number, folder)
            seen.append(noticed)
            table.writerow((module, line, change, int(noticed)))
            file.flush()
            print(
                f"{sum(seen)} of {len(seen)} caught   {'' if noticed else 'SURVIVED '}{module}:{line} {change}",
                flush=True,
            )
    print(f"{sum(seen)} of {len(seen)} mutants caught, drawn with seed {arguments.seed} from {len(everything)}")


if __name__ == "__main__":
    main()
