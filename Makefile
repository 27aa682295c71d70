# Needs python3 (3.10 or newer) and make. Every target that runs something builds .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The paper's data sets, where they lie beside this folder; without them the tests that need them are skipped.
KREIN_DATA ?= $(wildcard $(CURDIR)/../shared/data)
export KREIN_DATA

# Two test processes with one BLAS thread each: more threads than cores make small matrices many times slower.
TEST_PROCESSES ?= 2
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n $(TEST_PROCESSES)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format test-slow coverage mutants fuzz trust soak bench paper docs docs-quick test-docs dist clean

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "krein needs Python 3.10 or newer; try make PYTHON=...")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip>=23"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all,docs,dev]"
	@touch $@

demo: $(INSTALLED)  ## Show on small data what krein does
	$(BIN)/krein demo

test: lint  ## Run every check, then the tests (not the slow ones)
	$(PYTEST)

lint: $(INSTALLED)  ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
		echo "$(BIN)/mypy --strict src paper"; $(BIN)/mypy --strict src paper; \
	else \
		echo "types: checked on Python 3.11 alone; other Pythons get other versions of NumPy and SciPy, with other types"; \
	fi
	$(BIN)/lint-imports

format: $(INSTALLED)  ## Format the code and repair what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-slow: $(INSTALLED)  ## Run the slow tests
	$(PYTEST) -m slow

coverage: $(INSTALLED)  ## Run the tests that call the source, and list the lines and branches they leave out
	$(PYTEST) --ignore=tests/trust --ignore=tests/paper --ignore=tests/test_benchmarks.py --ignore=tests/test_pages.py \
		--ignore=tests/test_runner.py --cov=krein --cov-branch --cov-report=term-missing:skip-covered

MUTANTS ?= 60
mutants: $(INSTALLED)  ## Change MUTANTS=60 operators and numbers one at a time, and count what the tests notice
	$(ONE_THREAD) $(BIN)/python trust/mutants.py --count $(MUTANTS)

# Rounds with new seeds begin until the time is over; the last one is finished. A failing round ends it. Hypothesis prints
# each failing test with its arguments, which are those of the @example(...) to add above it.
FUZZ_MINUTES ?= 10
fuzz: $(INSTALLED)  ## Draw random examples for the property tests, for FUZZ_MINUTES=10
	@end=$$(( $$(date +%s) + 60 * $(FUZZ_MINUTES) )); \
	while [ $$(date +%s) -lt $$end ]; do \
		seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
		echo "property tests with --hypothesis-seed=$$seed"; \
		$(PYTEST) -q -m "hypothesis and not slow" --hypothesis-profile=fuzz --hypothesis-seed=$$seed || { \
			echo "Add an @example(...) with the arguments shown to each failing test, and mend the code."; exit 1; }; \
	done

trust: $(INSTALLED)  ## Try to break the library, one line per attack (docs/trust.md)
	$(BIN)/python trust/run.py --n-jobs $(TEST_PROCESSES)

SECONDS ?= 3600
soak: $(INSTALLED)  ## Fit, predict, save and load for SECONDS=3600 and look at memory and open files
	TRUST_SECONDS=$(SECONDS) $(BIN)/python trust/run.py soak --out build/trust-soak

bench: $(INSTALLED)  ## Run the benchmarks
	$(BIN)/python benchmarks/run.py

paper: $(INSTALLED)  ## Run the paper's experiments; finished pieces are kept
	$(BIN)/python -m paper all --n-jobs 2

# From nothing: what an earlier build left could hide a broken link. A warning is an error.
SPHINX := $(ONE_THREAD) $(BIN)/python -m sphinx -W --keep-going -q -d build/docs/trees docs build/docs/html
docs: $(INSTALLED)  ## Build the site with every example into build/docs/html
	rm -rf build/docs docs/api docs/gallery docs/results
	$(SPHINX)
	@echo "build/docs/html/index.html"

docs-quick: $(INSTALLED)  ## Build the site with three of the examples
	rm -rf build/docs docs/api docs/gallery docs/results
	KREIN_DOCS=quick $(SPHINX)

test-docs: $(INSTALLED)  ## Look at the built site in chromium: links, pictures, search, phone width, axe
	@test -f build/docs/html/index.html || { echo "Build the site first: make docs"; exit 1; }
	$(BIN)/python -m pytest -m site tests/test_site.py

dist: $(INSTALLED)  ## Build wheel and sdist, and run the tests against the wheel in clean environments
	$(BIN)/python release/prove.py

clean:  ## Remove .venv and everything that was built
	rm -rf $(VENV) build dist docs/api docs/gallery docs/results .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find src tests paper benchmarks trust -name __pycache__ -type d -prune -exec rm -rf {} +
