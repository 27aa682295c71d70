"""Supply: what krein imports, and whether it talks to anyone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from trust.attacks import Attack, Tally
from trust.faults import environment

# What an import of krein may load beside Python's own modules; scikit-learn and SciPy come with the first machine.
LIGHT = {"krein"}
# What a fit may load: the dependencies that pyproject.toml names, and theirs.
DECLARED = {"krein", "numpy", "scipy", "sklearn", "joblib", "threadpoolctl", "tqdm", "click", "safetensors", "trust"}
# Optional libraries that others load where they are installed: pandas by scikit-learn, for instance.
OPTIONAL = {"pandas", "pyarrow", "polars", "dateutil", "pytz", "six", "matplotlib", "packaging", "psutil",
            "charset_normalizer", "cloudpickle", "rich", "array_api_compat", "narwhals",
            "cython_runtime", "Cython"}  # fmt: skip

PROGRAM = """
import json, socket, sys
calls = []
def refuse(*args, **options):
    calls.append(str(args[:1]))
    raise OSError("no network here")
class Closed(socket.socket):
    connect = connect_ex = sendto = bind = refuse
socket.socket = Closed
socket.create_connection = socket.getaddrinfo = refuse
before = set(sys.modules)
{body}
roots = {{name.partition(".")[0] for name in set(sys.modules) - before}}
others = sorted(name for name in roots if name not in sys.stdlib_module_names and not name.startswith("_"))
print(json.dumps([calls, others]))
"""
IMPORT = "import krein"
FIT = """
import numpy as np, krein
X = np.random.default_rng(0).normal(size=(200, 3)); y = (X[:, 0] > 0).astype(int)
for cls in (krein.SVC, krein.KernelRidge, krein.GaussianProcessRegressor, krein.KernelPCA, krein.OneClassSVM):
    for more in ({}, {"n_blocks": 3, "rank": 10}):
        cls(random_state=0, **more).fit(X, y)
krein.inspect(X, krein.RBF(), y)
"""
CALL_HOME = (
    "import urllib.request, contextlib\nwith contextlib.suppress(OSError): urllib.request.urlopen('http://localhost')"
)


def run(body: str) -> tuple[list[str], list[str]]:
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM.format(body=body)], capture_output=True,
                          text=True, check=True, cwd=root, env=environment(root))  # fmt: skip
    calls, others = json.loads(done.stdout.splitlines()[-1])
    return calls, others


def network(*bodies: str) -> Tally:
    tally = Tally()
    for body in bodies:
        calls, _ = run(body)
        tally.add(not calls, f"{body.strip().splitlines()[0]}: {calls}")
    return tally


def imports(bodies: dict[str, set[str]]) -> Tally:
    tally = Tally()
    for body, allowed in bodies.items():
        extra = set(run(body)[1]) - allowed
        tally.add(not extra, f"{body.strip().splitlines()[0]}: {sorted(extra)}")
    return tally


ATTACKS = (
    Attack("supply", "no network at import or fit", lambda q: network(*[IMPORT, FIT][: 1 if q else 2]),
           lambda q: network(CALL_HOME), "a page that is fetched"),
    Attack("supply", "nothing undeclared is loaded",
           lambda q: imports({IMPORT: LIGHT} | ({} if q else {FIT: DECLARED | OPTIONAL})),
           lambda q: imports({"import hypothesis": LIGHT}), "a library for tests"),
)  # fmt: skip
