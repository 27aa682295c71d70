"""Run the benchmarks and write results/: python benchmarks/run.py [NAME|all] [--quick]. The names are in README.md.

Recorded tasks are skipped unless --force is given. BLAS uses --threads threads (1), which every table's JSON records.
--quick runs small versions into build/bench-quick; they show that everything works, no more.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCHMARKS = (
    "cells", "lanczos", "blocksparse", "scaling", "interval", "shared", "problems", "nystrom", "many", "auto", "dual",
    "indefinite", "gp", "machines", "similarity", "files", "imports", "strings", "outside", "plan", "exact", "limit",
    "curve",
    "front", "krein_space",
)  # fmt: skip

# The options of the benchmarks that can be run in parts.
PARTS = {"curve": ("only", "least", "most", "contenders"), "limit": ("most",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?", default="all", choices=(*BENCHMARKS, "all"))
    parser.add_argument("--quick", action="store_true", help="small versions, a couple of minutes in all")
    parser.add_argument("--force", action="store_true", help="run recorded tasks again")
    parser.add_argument(
        "--report-only", action="store_true", help="write the reports of the recorded rows, compute nothing"
    )
    parser.add_argument("--threads", type=int, default=1, help="BLAS threads")
    parser.add_argument(
        "--out", type=Path, help="where tables go; by default results/, or build/bench-quick with --quick"
    )
    part = parser.add_argument_group("parts of a benchmark (curve; --most of limit too)")
    part.add_argument("--only", type=names, help="machines, with commas between: SVC,SVR")
    part.add_argument("--least", type=int, help="the smallest number of rows")
    part.add_argument("--most", type=int, help="the largest number of rows")
    part.add_argument("--contenders", type=names, help="with commas between: krein,scikit-learn")
    arguments = parser.parse_args()
    parts = {name: value for name in PARTS["curve"] if (value := getattr(arguments, name))}
    if wrong := parts.keys() - set(PARTS.get(arguments.benchmark, ())):
        parser.error(f"{', '.join('--' + name for name in sorted(wrong))}: not an option of {arguments.benchmark}.")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(arguments.threads)
    out = arguments.out or HERE.parent / ("build/bench-quick" if arguments.quick else "results")
    sys.path.insert(0, str(HERE.parent))
    from benchmarks.runner import Request, perform  # loads numpy, which reads the numbers of threads

    flags = f"{' --quick' if arguments.quick else ''} --threads {arguments.threads}"
    flags += "".join(f" --{k} {','.join(v) if isinstance(v, list) else v}" for k, v in parts.items())
    failures = []
    for name in BENCHMARKS if arguments.benchmark == "all" else (arguments.benchmark,):
        request = Request(
            out, quick=arguments.quick, threads=arguments.threads, force=arguments.force,
            report_only=arguments.report_only, command=f"benchmarks/run.py {name}{flags}", options=parts,
        )  # fmt: skip
        failures += perform(name, importlib.import_module(f"benchmarks.bench_{name}"), request)[0]
    if failures:
        raise SystemExit("\n".join(failures))


def names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
