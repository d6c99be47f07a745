# The project's commands; `make` alone lists them. Everything runs in .venv, which is set up if it is missing or outdated.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONFIG ?=
VSE_WORK_DIR ?= $(HOME)/vse-work
UI_PORT ?= 5000
# Processes of the tests; each uses one thread.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest
KUBERAY := $(wildcard infra/kubernetes/ray*.yaml)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-integration test-nightly test-gpu lint docs format types pins bench ui

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv with everything installed (again only after a change of pyproject.toml)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make setup PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --editable ".[dev]"
	@touch $(STAMP)

demo: $(STAMP)  ## the main job on generated scenes: no data, no network, no GPU needed
	$(BIN)/python pipelines/full.py $(if $(CONFIG),--config $(CONFIG))

test: $(STAMP)  ## the unit tests, and one small pipeline through Ray and MLflow (minutes)
	$(PYTEST) --numprocesses=$(JOBS) --dist=worksteal

test-integration: $(STAMP)  ## the tests with servers, clusters, several hosts, failures and a browser
	$(PYTEST) -m integration --numprocesses=$(JOBS) --dist=loadgroup

test-nightly: $(STAMP)  ## the tests that take minutes each
	$(PYTEST) -m nightly

test-gpu: $(STAMP)  ## the tests that need a GPU
	@$(BIN)/python -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "make test-gpu: torch finds no GPU on this machine")'
	$(PYTEST) -m gpu

lint: $(STAMP)  ## style, format and types; Dockerfiles, shell scripts, Compose, Kubernetes and workflow files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/hadolint $(shell find infra -name Dockerfile)
	$(BIN)/shellcheck $(shell find infra -name '*.sh') .ci/run
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec infra/mlflow/compose.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --schemafile infra/kubernetes/kuberay.schema.json $(KUBERAY)
	$(BIN)/kubernetes-validate --kubernetes-version 1.34 --strict --quiet $(filter-out $(KUBERAY),$(wildcard infra/kubernetes/*.yaml))

format: $(STAMP)  ## rewrite the files in the project's format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

types: $(STAMP)  ## types alone
	$(BIN)/mypy

# Of one file, with what it has already: a version changes if pyproject.toml asks for it, or with PINS=--upgrade.
COMPILE := UV_CUSTOM_COMPILE_COMMAND='make pins' $(BIN)/uv pip compile --quiet --generate-hashes --only-binary :all: \
	--python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-annotate $(PINS)
pins: $(STAMP)  ## pin every package of the images with its hashes (PINS=--upgrade: to the newest versions)
	$(COMPILE) pyproject.toml --extra features --extra server --output-file infra/docker/constraints.txt
	printf '%s\n' boto3 Flask-WTF mlflow psycopg2-binary | \
		$(COMPILE) --constraints infra/docker/constraints.txt --output-file infra/mlflow/requirements.txt -

# Of this checkout, and not of what is installed.
docs: export PYTHONPATH := $(CURDIR)
docs: $(STAMP)  ## the documentation into site/; a broken link or docstring is an error
	$(BIN)/python .ci/configuration_reference.py
	$(BIN)/python .ci/experiments.py
	$(BIN)/zensical build --strict --clean >.docs.log 2>&1 || { cat .docs.log; exit 1; }
	@! grep griffe: .docs.log

bench: $(STAMP)  ## the benchmarks of speed, and the published tables; results in tests/benchmarks/results
	set -e; for name in reader training extraction parsing gpo_study evaluation efficiency checkpoints tables; do $(BIN)/python tests/benchmarks/$$name.py; done

ui: $(STAMP)  ## MLflow's pages over the runs in VSE_WORK_DIR, on UI_PORT
	VSE_WORK_DIR=$(VSE_WORK_DIR) $(BIN)/vse ui --port $(UI_PORT)
