# The commands of the project. `make up` and `make test` need nothing but Python >= 3.11.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
SOURCES := hub spawner scheduler extensions tests benchmarks
ARGS ?=
MYPY_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/carrel/mypy
LARGE_LIBRARIES := 'torch>=2.5' 'tensorflow-cpu>=2.18' 'transformers[torch]>=5' 'lightning>=2.6' 'mlflow-skinny>=3' 'wandb>=0.30'

.PHONY: help up test test-torch check lint types contracts unit hunt mutation format audit sbom clean

help: ## Show the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

up: $(VENV)/.installed ## Install into .venv and start everything on this machine (ARGS="--port 8001 --demo")
	@exec $(BIN)/carrel up $(ARGS)

test: $(VENV)/.installed-dev browser directory cluster ## Run every check and test
	@export PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONDONTWRITEBYTECODE=
	PYTHONPATH=tests $(BIN)/python -m e2e.open_mpi
	$(MAKE) --no-print-directory --jobs=2 --output-sync lint types contracts
	exec $(BIN)/pytest tests --numprocesses=3 --dist=loadscope $(ARGS)

test-torch: $(VENV)/.installed-dev ## The examples of PyTorch and TensorFlow, and the recipes; installs some gigabytes
	@$(BIN)/python -m pip install --disable-pip-version-check $(LARGE_LIBRARIES)
	exec $(BIN)/pytest tests/e2e/test_examples.py tests/e2e/test_recipes.py -m torch $(ARGS)

check: $(VENV)/.installed-dev ## Lint, types, layers and unit tests: the quick round
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint types contracts
	$(MAKE) --no-print-directory unit

lint: $(VENV)/.installed-dev ## Style, spelling, dead code
	@$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/vulture
	$(BIN)/codespell $(SOURCES) deploy images docs README.md CONTRIBUTING.md CHANGELOG.md

# What mypy has found is kept by the content of files, so that a new clone does not begin anew.
types: $(VENV)/.installed-dev ## mypy, strict
	@mkdir -p "$(MYPY_CACHE)"
	MYPY_CACHE_DIR="$(MYPY_CACHE)" $(BIN)/mypy

contracts: $(VENV)/.installed-dev ## The layers of docs/architecture.md
	@$(BIN)/lint-imports

unit: $(VENV)/.installed-dev ## Unit tests only, without the slow ones
	@$(BIN)/pytest tests/unit -q -m "not slow" --numprocesses=2 --dist=loadscope

hunt: $(VENV)/.installed-dev ## Long random stories with every invariant (ARGS="--runs 5000 --steps 50")
	@$(BIN)/python tests/hunts/machine.py $(ARGS)

mutation: $(VENV)/.installed-dev ## Put faults into the core; the tests must notice (ARGS="--sample 300 --seed 2")
	@$(BIN)/python tests/hunts/mutation.py $(ARGS)

format: $(VENV)/.installed-dev ## Put the code into shape
	@$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

audit: $(VENV)/.installed-dev ## Known vulnerabilities of what the images hold (asks the package index)
	@for requirements in images/*/requirements.txt; do
		$(BIN)/pip-audit --strict --disable-pip --requirement "$$requirements"
	done

sbom: $(VENV)/.installed-dev ## A software bill of materials for each image, in dist/
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash images/sbom.sh dist

clean: ## Remove what was built; the state folder of `carrel up` stays
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.PHONY: browser
browser:
	@bash tests/install-browser.sh

# An LDAP server for the tests of sign-in.
.PHONY: directory
directory:
	@bash tests/install-directory.sh

# A Kubernetes and a Prometheus for tests: built once from Go modules, kept in the user's cache.
.PHONY: cluster
cluster: $(VENV)/.installed-dev
	@bash tests/k8s/install-node.sh
	PYTHONPATH=tests $(BIN)/python -m k8s.cluster.prepare

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then
		echo "Carrel needs Python 3.11 or newer, and none was found on the PATH. Install one, or name it: make up PYTHON=/path/to/python3.11" >&2
		exit 1
	fi
	if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then
		echo "$(PYTHON) cannot make virtual environments: install its venv module (on Debian: apt install python3-venv)." >&2
		exit 1
	fi
	echo "Making $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)

# On a terminal, what pip is at, in one place; what goes wrong stays on the screen.
SHOW_PROGRESS := awk -v terminal="$$(test -t 2 && echo yes)" ' \
	terminal && /^ *(Collecting|Obtaining)/ { printf "\r\033[K  fetching %s", $$2; fflush() } \
	terminal && /^Installing collected/ { printf "\r\033[K  putting it in place"; fflush() } \
	END { if (terminal) printf "\r\033[K" }'

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Carrel into $(VENV) (once; a minute or two)"
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[hub,demo]' | $(SHOW_PROGRESS)
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Carrel with what its tests need into $(VENV) (once; a minute or two)"
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev]' | $(SHOW_PROGRESS)
	touch $@ $(VENV)/.installed
