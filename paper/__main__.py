"""python -m paper: the paper's tables and figures; the same as krein reproduce."""

import sys

from krein.cli import main

main(["reproduce", *sys.argv[1:]], prog_name="krein")
