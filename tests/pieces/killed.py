"""A fit in a process of its own that ends by SIGKILL after some files were written: ``killed.py folder after how``.

``how`` is "before" or "after" the file gets its name. Without a count it fits to the end and saves its answers.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
from cases import SMALL, answers, fitted

import krein.approximation.piecewise
import krein.pieces.rows

krein.pieces.rows.FEWEST_ROWS = 400
krein.approximation.piecewise.check_memory = lambda *sizes: None  # limits are tiny here
folder, machine = Path(sys.argv[1]), sys.argv[2]
if len(sys.argv) > 3:
    left, before, rename = int(sys.argv[3]), sys.argv[4] == "before", os.replace

    def counted(part, path):
        global left
        left -= 1
        if left < 0 and before:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(part, path)
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = counted
fit = fitted(machine, folder / "x.npy", workdir=folder / "work", random_state=None, **SMALL)
np.save(folder / "answers.npy", answers(machine, fit))
