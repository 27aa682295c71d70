"""Attack the library and write results/trust: python trust/run.py [FAMILY ...] [--quick]. docs/trust.md explains it.

Every attack is made again, whatever is recorded. The exit code is 1 if something did not hold that is not listed in
trust/open.py, or if a control broke nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="hostile, honesty, faults, files, soak, supply; all by default")
    parser.add_argument("--attack", action="append", help="only attacks with these words in their name")
    parser.add_argument("--quick", action="store_true", help="the short form, into build/trust-quick")
    parser.add_argument("--n-jobs", type=int, default=2, help="attacks at a time")
    parser.add_argument("--resume", action="store_true", help="keep recorded attacks, and make the others")
    parser.add_argument("--out", type=Path, help="where the table goes")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.insert(0, str(HERE.parent))
    from benchmarks.runner import Request, perform, read_csv  # loads numpy, which reads the numbers of threads
    from trust import board

    unknown = set(arguments.families) - set(board.FAMILIES)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: the families are {', '.join(board.FAMILIES)}.")
    out = arguments.out or HERE.parent / ("build/trust-quick" if arguments.quick else "results/trust")
    request = Request(
        out, quick=arguments.quick, n_jobs=arguments.n_jobs, force=not arguments.resume,
        command=" ".join(["trust/run.py", *arguments.families, *["--quick"] * arguments.quick,
                          *(f"--attack {words!r}" for words in arguments.attack or ())]),
        options={"families": arguments.families or board.FAMILIES, "attacks": arguments.attack or [""]},
    )  # fmt: skip
    failures = perform("trust", board, request)[0]
    rows = read_csv(out / "trust.csv")
    print("\n".join(board.line(row) for row in rows))
    failures += [f"{row['family']}, {row['attack']}: {found}" for row in rows for found in board.findings(row)]
    if failures:
        raise SystemExit("\n".join(["", *failures]))


if __name__ == "__main__":
    main()
