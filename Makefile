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
.PHONY: help build debug test fuzz lint lint-rules lint-format lint-imports lint-cython format types types-python types-stubs \
        tidy audit bench cover demo reference docs diagrams dist wheels requirements ci clean nightly release

help:  ## List these words
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Built with the environment's own Cython: an isolated one is new each time, and makes everything compile again.
# Exactly what requirements/dev.txt says, with its hashes; what is installed in place has none, so it comes by itself.
$(TOOLS): pyproject.toml requirements/dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --require-hashes -r requirements/dev.txt
	$(BIN)/pip install -q --no-build-isolation --no-deps -e .
	touch $@

build: $(TOOLS)  ## Compile what changed, in place
	$(BIN)/python setup.py -q build_ext --inplace

debug: $(TOOLS)  ## Compile with checks, tracing, annotated C, and the sanitizers named by GOSSIPKV_SANITIZE
	GOSSIPKV_DEBUG=1 $(BIN)/python setup.py -q build_ext --inplace --force

test: build  ## Run what each commit must pass within minutes; ARGS="-k name" chooses
	$(BIN)/python -m pytest $(ARGS)

fuzz: build  ## Run the properties and fuzz tests with fresh random input, ten times more of it
	$(BIN)/python -m pytest --hypothesis-profile=explore --randomly-seed=default tests/unit tests/nightly/fuzz $(ARGS)

# Each number is read by a test, which says what it counts; tests/nightly has the legs, and ARGS="soak" chooses some.
NIGHTLY = SIMULATED_SEEDS=1000 FUZZ_FRAMES=2500000 FUZZ_FLIPS=1000000 CRASH_STRIDE=1 SOAK_SECONDS=3600 CHAOS_SECONDS=3400 FAULTS_SECONDS=1200 MOVES_SECONDS=600 DIVISIONS_SECONDS=600 TABLES=1000 MUTATION_SECONDS=1200 LEG_MINUTES=60
RELEASE = SIMULATED_SEEDS=5000 FUZZ_FRAMES=25000000 FUZZ_FLIPS=10000000 CRASH_STRIDE=1 SOAK_SECONDS=28800 CHAOS_SECONDS=28800 FAULTS_SECONDS=7200 MOVES_SECONDS=7200 DIVISIONS_SECONDS=7200 TABLES=1000 MUTATION_SECONDS=7200 LEG_MINUTES=600

nightly: build  ## What takes too long for each change: all seeds, floods, flips, kills, a soak, sanitizers
	$(NIGHTLY) $(BIN)/python -m tests.nightly build/nightly.txt $(ARGS)

release: build  ## The same at the numbers of a release; its report is kept in docs/development/releases
	$(RELEASE) $(BIN)/python -m tests.nightly \
	    docs/development/releases/$$($(BIN)/python -c 'import gossipkv; print(gossipkv.__version__)').txt $(ARGS)

lint: lint-rules lint-format lint-imports lint-cython  ## Ruff, its formatter, import-linter, cython-lint
lint-rules: $(TOOLS)
	$(BIN)/ruff check .
lint-format: $(TOOLS)
	$(BIN)/ruff format --check .
lint-imports: $(TOOLS)
	$(BIN)/lint-imports --no-cache --no-logo
lint-cython: $(TOOLS)
	$(BIN)/cython-lint src_ext

format: $(TOOLS)  ## Let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: types-python types-stubs  ## Mypy, and every extension against its stub
types-python: $(TOOLS)
	$(BIN)/mypy
	@# As a user's mypy meets what is installed, editable or not: from elsewhere.
	cd / && $(abspath $(BIN))/mypy --strict --cache-dir=$(CURDIR)/.mypy_cache/elsewhere -c \
		'import gossipkv; value: bytes | None = gossipkv.blocking.connect(["a:1"]).dataset("d").get(b"k")'
types-stubs: build
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml $(EXTENSIONS)

tidy: build  ## Only the tests that read the source: layers, sizes, reasons, names
	$(BIN)/python -m pytest tests/ci/tidy $(ARGS)

# The extras that users install; those for development are pinned in requirements/dev.txt.
EXTRAS = parquet avro delta iceberg s3 gcs azure feast secure

audit:  ## Look for known faults in the pinned packages, and in the oldest ones that pyproject.toml allows
	test -x build/audit/bin/pip-audit || { $(PYTHON) -m venv build/audit && build/audit/bin/pip install -q pip-audit uv; }
	build/audit/bin/uv pip compile -q --universal --python-version 3.11 --resolution lowest-direct --no-annotate --no-header \
	    --no-emit-index-url $(EXTRAS:%=--extra %) -o build/audit/oldest.txt pyproject.toml
	for pins in requirements/dev.txt requirements/image.txt requirements/build.txt build/audit/oldest.txt; do \
	    echo "$$pins:"; build/audit/bin/pip-audit --progress-spinner off --strict --disable-pip --no-deps -r $$pins || exit 1; \
	done

bench: build  ## Compare with the peers (installs them)
	$(BIN)/pip install -q -e '.[bench]'
	$(BIN)/python -m tests.bench $(ARGS)

cover: build  ## Run the tests under coverage.py and report the Python lines that no test reaches
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

demo: build  ## Serve real data, upgrade it under load, clean up
	$(BIN)/gossipkv demo

stubs:  ## Write the stubs of the clients
	$(BIN)/python .ci/stubs.py

reference: build  ## Write the pages below docs/reference from the code, and that of the figures
	$(BIN)/python docs/reference.py
	$(BIN)/python -m tests.bench.page

docs: build  ## Build the site of the documentation: build/docs/index.html (installs Sphinx)
	$(BIN)/pip install -q -e '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees docs \
	    build/docs/$$($(BIN)/python -c 'import gossipkv; print(gossipkv.__version__)')

# The wheel is of this tree, where all is compiled; `.ci/run` compiles what the source archive carries on another Python.
dist: $(TOOLS)  ## Build the source archive and the wheel into dist/
	rm -rf dist
	find build -path '*/lib.*' -name '*.py*' -delete  # Modules of an earlier wheel, which may be gone since.
	find build -path '*/lib.*/tests/*' -delete  # What tests alone need, built in place.
	$(BIN)/python -m build --no-isolation --sdist --wheel

PIN = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
        --custom-compile-command 'make requirements'

requirements: $(TOOLS)  ## Pin anew what development and the image use, with hashes, for all supported Pythons
	$(BIN)/pip install -q uv
	$(PIN) --upgrade --extra dev -o requirements/dev.txt pyproject.toml
	$(PIN) --extra secure -c requirements/dev.txt -o requirements/image.txt pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	    | $(PIN) -c requirements/dev.txt -o requirements/build.txt -

wheels: $(TOOLS)  ## Build manylinux wheels into dist/wheelhouse, and try each where there is no compiler
	rm -rf dist
	$(BIN)/python -m build --no-isolation --sdist
	.ci/wheels $(BIN)

ci:  ## All that continuous integration does
	.ci/run

clean:  ## Remove what the other words made, but not the environment
	rm -rf build dist gossipkv.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find gossipkv tests -name '*.so' -delete
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
