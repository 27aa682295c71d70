"""python -m krein: the command line."""

from krein.cli import main

main(prog_name="krein")
