# Two commands do everything on a fresh Debian 12 machine with Python, git and make:
#   make test   sets up, checks and tests        make demo   sets up and runs the main job
# PYTHON=python3.13 takes another Python than the first one of the machine, with a virtual environment of its own.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
FOUND := $(shell .ci/python $(PYTHON))
override PYTHON := $(word 1,$(FOUND))
VENV := $(word 2,$(FOUND))
export PYTHON
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.installed-demo
PYTEST := $(BIN)/python -m pytest
FUZZ_SECONDS ?= 1200
JOBS ?= 3
DEMO ?=
export SPARK_LOCAL_IP := 127.0.0.1
# Images of containers often set it. Then each of the thousands of processes of a run would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
STARTED := $(shell .ci/clock)

.PHONY: help test check pythons tests lint types arrows unit demo bench bench-peers fuzz soak conformance console docs release packages-linux images lock packages packages-demo clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

packages:  ## Debian packages that the tests need; make demo installs fewer
	@.ci/packages test

packages-demo:
	@.ci/packages demo

# What is installed already is not asked for again: a second run needs no network.
$(INSTALLED): pyproject.toml requirements.lock .ci/install .ci/promtool | packages
	$(PYTHON) .ci/install $(VENV) test
	.ci/promtool $(BIN)
	touch $@ $(DEMO_INSTALLED)
	@.ci/clock '$(STARTED)' 'set up for the tests' $$PPID

$(DEMO_INSTALLED): pyproject.toml requirements.lock .ci/install | packages-demo
	$(PYTHON) .ci/install $(VENV) enterprise,rollout
	touch $@
	@.ci/clock '$(STARTED)' "set up for the demo, $$(du -sm $(VENV) | cut -f1) MB in $(VENV)" $$PPID

lint: $(INSTALLED)  ## ruff: style and mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)  ## mypy --strict on both packages
	$(BIN)/mypy

arrows: $(INSTALLED)  ## import-linter: the arrows of the architecture
	$(BIN)/lint-imports

SIDE_BY_SIDE := --dist loadscope --no-loadscope-reorder -n

tests: $(INSTALLED)
	@.ci/clock '$(STARTED)' 'before the tests' $$PPID
	$(PYTEST) $(SIDE_BY_SIDE) $(JOBS) -m "not soak"

unit: $(INSTALLED)
	$(PYTEST) -q $(SIDE_BY_SIDE) $(JOBS) -m "not servers and not slow and not soak"

check: lint  ## fast: lint, types, arrows, unit and conformance tests
	@$(MAKE) --no-print-directory --jobs=3 types arrows unit STARTED='$(STARTED)'
	@.ci/clock '$(STARTED)' 'make check' $$PPID

pythons:  ## make check with each supported Python that the machine has, on PATH or pyenv's, or with those of PYTHONS
	@failed=; for python in $${PYTHONS:-$$(.ci/python --all)}; do \
	  printf -- '-- %s\n' "$$($$python --version)"; $(MAKE) --no-print-directory check PYTHON="$$python" || failed+=" $$python"; \
	done; [ -z "$$failed" ] || { echo "make check failed with$$failed" >&2; exit 1; }

test: lint  ## everything that must hold, real servers included, by JOBS (3) processes side by side
	@$(MAKE) --no-print-directory --jobs=3 types arrows tests STARTED='$(STARTED)'
	@.ci/clock '$(STARTED)' 'make test' $$PPID

demo: $(DEMO_INSTALLED)  ## the main job, told as a story; DEMO="--keep" leaves it running, DEMO=stop removes it
	$(BIN)/python -m tests.lab.demo $(DEMO)

conformance: $(INSTALLED)  ## which test shows which section of the specifications, with counts
	$(BIN)/python -m tests.conformance.matrix

bench: $(INSTALLED)  ## the tables of speeds, with ratios taken in one run
	$(BIN)/python -m tests.bench

bench-peers: $(INSTALLED)  ## messages a second end to end, beside RabbitMQ's shovel and NATS, which it installs from Debian
	@.ci/packages peers
	$(BIN)/python -m tests.bench.peers

fuzz: $(INSTALLED)  ## the coverage-guided fuzzer over every parser, or FUZZ_TARGETS, for FUZZ_SECONDS (1200)
	$(PYTHON) .ci/install $(VENV) fuzz
	nice -n 15 $(BIN)/python -m tests.fuzz.fuzz $(FUZZ_TARGETS) -max_total_time=$(FUZZ_SECONDS)

soak: $(INSTALLED)  ## long runs, all or those of SOAK=tests/faults, with the figures that they print
	@.ci/packages linux
	$(PYTEST) $(SOAK) -m soak -rfERP --timeout=0 --durations=0

console: packages  ## the console's page from its TypeScript, qmnode/console/static; its packages are those of package-lock.json
	$(PYTHON) .ci/console

docs: $(INSTALLED)  ## the documentation as a site, build/site/index.html; needs no network to be read
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

release: $(INSTALLED)  ## sdist, wheel, collection, packages, images, SBOM and checksums in dist/, each checked, installed and tried
	@.ci/packages linux
	$(PYTHON) .ci/install $(VENV) release
	OFFLINE=$(OFFLINE) ADVISORIES=$(ADVISORIES) RELEASE_KEY=$(RELEASE_KEY) .ci/release $(BIN)

packages-linux: $(INSTALLED)  ## .deb of node and toolkit for Debian 12 and 13, and .rpm, in dist/
	@.ci/packages linux
	$(BIN)/python packaging/linux/build.py

images: packages-linux  ## images of node, console and directory as OCI layouts, in dist/, as root
	$(BIN)/python packaging/images/build.py

lock: $(DEMO_INSTALLED)  ## renew requirements.lock from pyproject.toml; it names versions and hashes, and no host
	$(BIN)/uv pip compile --quiet --all-extras --generate-hashes --universal --python-version 3.11 --no-emit-index-url \
	  --no-emit-package qmnode --no-header --no-annotate --output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
