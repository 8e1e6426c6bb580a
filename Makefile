# Two commands do everything on a fresh Debian 12 machine with Python 3.11, git and make:
#   make test   sets up, checks and tests        make demo   sets up and runs the main job
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
FUZZ_SECONDS ?= 1200
JOBS ?= 2
DEMO ?=
export SPARK_LOCAL_IP := 127.0.0.1

.PHONY: help test check lint types arrows unit demo bench fuzz soak conformance release lock packages clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

packages:  ## Debian packages that the tests and the demo need
	@.ci/packages

$(INSTALLED): pyproject.toml requirements.lock .ci/promtool | packages
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[test]'
	.ci/promtool $(BIN)
	touch $@

lint: $(INSTALLED)  ## ruff: style and mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)  ## mypy --strict on both packages
	$(BIN)/mypy

arrows: $(INSTALLED)  ## import-linter: the arrows of the architecture
	$(BIN)/lint-imports

SIDE_BY_SIDE := -n $(JOBS) --dist loadscope --no-loadscope-reorder

unit: $(INSTALLED)
	$(PYTEST) -q $(SIDE_BY_SIDE) -m "not servers and not slow and not soak"

check: lint types arrows unit  ## fast: lint, types, arrows, unit and conformance tests

test: lint types arrows  ## everything that must hold, real servers included, by JOBS (2) processes side by side
	$(PYTEST) $(SIDE_BY_SIDE) -m "not soak"

demo: $(INSTALLED)  ## the main job, told as a story; DEMO="--keep" leaves it running, DEMO=stop removes it
	$(BIN)/python -m tests.lab.demo $(DEMO)

conformance: $(INSTALLED)  ## which test shows which section of the specifications, with counts
	$(BIN)/python -m tests.conformance.matrix

bench: $(INSTALLED)  ## the tables of speeds, with ratios taken in one run
	$(BIN)/python -m tests.bench

fuzz: $(INSTALLED)  ## the coverage-guided fuzzer over every parser, for FUZZ_SECONDS (1200)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[fuzz]'
	nice -n 15 $(BIN)/python -m tests.fuzz.fuzz -max_total_time=$(FUZZ_SECONDS)

soak: $(INSTALLED)  ## long runs
	$(PYTEST) -m soak --timeout=0 --durations=0

release: $(INSTALLED)  ## sdist, wheel and collection in dist/, each checked, installed in an empty environment and tried
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[release]'
	.ci/release $(BIN)

lock:  ## renew requirements.lock from pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'pip-tools>=7.4'
	$(BIN)/pip-compile --quiet --all-extras --strip-extras --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --no-header --no-annotate --allow-unsafe --output-file requirements.lock pyproject.toml
	sed -i "/^qmnode @/d" requirements.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
