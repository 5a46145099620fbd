# The words people type.  `make` alone lists them; `.ci/run` uses the same ones.
# Without an active virtual environment they make and use .venv.

PYTHON ?= python3
VENV := $(or $(VIRTUAL_ENV),.venv)
BIN := $(VENV)/bin
# cython-lint starts pycodestyle by its name.
export PATH := $(abspath $(BIN)):$(PATH)
TOOLS := $(VENV)/.gossipkv-tools
EXTENSIONS = $(subst /,.,$(basename $(patsubst src_ext/%,%,$(shell find src_ext -name '_*.pyx'))))

.DEFAULT_GOAL := help
.PHONY: help build debug test fuzz lint lint-rules lint-format lint-cython format types types-python types-stubs \
        tidy bench cover demo dist ci clean nightly

help:  ## List these words
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Built with the environment's own Cython: an isolated one is new each time, and makes everything compile again.
$(TOOLS): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q 'setuptools>=77' 'cython>=3.1,<4'
	$(BIN)/pip install -q --no-build-isolation -e '.[dev]'
	touch $@

build: $(TOOLS)  ## Compile what changed, in place
	$(BIN)/python setup.py -q build_ext --inplace

debug: $(TOOLS)  ## Compile with checks, tracing, annotated C, and the sanitizers named by GOSSIPKV_SANITIZE
	GOSSIPKV_DEBUG=1 $(BIN)/python setup.py -q build_ext --inplace --force

test: build  ## Run every test; ARGS="-k name" chooses
	$(BIN)/python -m pytest $(ARGS)

fuzz: build  ## Run the properties and fuzz tests with fresh random input, ten times more of it
	$(BIN)/python -m pytest --hypothesis-profile=explore tests/unit tests/fuzz $(ARGS)

nightly: build  ## More seeds, each run twice, and `make fuzz`: what takes too long for each change
	SIMULATED_SEEDS=1000 $(BIN)/python -m pytest -n 2 tests/simulation/test_seeds.py
	$(MAKE) fuzz

lint: lint-rules lint-format lint-cython  ## Ruff, its formatter, cython-lint
lint-rules: $(TOOLS)
	$(BIN)/ruff check .
lint-format: $(TOOLS)
	$(BIN)/ruff format --check .
lint-cython: $(TOOLS)
	$(BIN)/cython-lint src_ext

format: $(TOOLS)  ## Let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: types-python types-stubs  ## Mypy, and every extension against its stub
types-python: $(TOOLS)
	$(BIN)/mypy
types-stubs: build
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml $(EXTENSIONS)

tidy: build  ## Only the tests that read the source: layers, sizes, reasons, names
	$(BIN)/python -m pytest tests/tidy $(ARGS)

bench: build  ## Compare with the peers (installs them)
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/python -m tests.bench $(ARGS)

cover: build  ## Run the tests under coverage.py and report the Python lines that no test reaches
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

demo: build  ## Serve real data, upgrade it under load, clean up
	$(BIN)/gossipkv demo

# The wheel is of this tree, where all is compiled; `.ci/run` compiles what the source archive carries on another Python.
dist: $(TOOLS)  ## Build the source archive and the wheel into dist/
	rm -rf dist
	find build -path '*/lib.*' -name '*.py*' -delete  # Modules of an earlier wheel, which may be gone since.
	$(BIN)/python -m build --no-isolation --sdist --wheel

ci:  ## All that continuous integration does
	.ci/run

clean:  ## Remove what the other words made, but not the environment
	rm -rf build dist gossipkv.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find gossipkv -name '*.so' -delete
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
