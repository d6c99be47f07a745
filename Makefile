# The project's commands; `make` alone lists them. Everything runs in .venv, which is set up where it is missing or outdated.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONFIG ?=
VSE_WORK_DIR ?= $(HOME)/vse-work
UI_PORT ?= 5000

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-servers test-alone test-long test-fast lint format types bench ui

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv with everything installed (again only after a change of pyproject.toml)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make setup PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $(STAMP)

demo: $(STAMP)  ## the main job on generated scenes: no data, no network, no GPU needed
	$(BIN)/python pipelines/full.py $(if $(CONFIG),--config $(CONFIG))

test: $(STAMP)  ## the tests: those with servers, which mostly wait, beside those without
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-servers test-alone

test-servers: $(STAMP)
	$(BIN)/python -m pytest -m "(ray or s3) and not long"

test-alone: $(STAMP)
	$(BIN)/python -m pytest -m "not ray and not s3 and not long"

test-long: $(STAMP)  ## the tests that take minutes each
	$(BIN)/python -m pytest -m long

test-fast: $(STAMP)  ## the tests that start no Ray and take seconds
	$(BIN)/python -m pytest -m "not ray and not s3 and not slow"

lint: $(STAMP)  ## style, format and types, as the CI checks them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## rewrite the files in the project's format
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

types: $(STAMP)  ## types alone
	$(BIN)/mypy

bench: $(STAMP)  ## the benchmarks of speed, and the README's tables; results in tests/benchmarks/results
	set -e; for name in reader training extraction butd parsing pooling gpo_study step unified_step evaluation efficiency sizing tables; do $(BIN)/python tests/benchmarks/$$name.py; done

ui: $(STAMP)  ## MLflow's pages over the runs in VSE_WORK_DIR, on UI_PORT
	MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(BIN)/mlflow server --workers 1 \
		--port $(UI_PORT) --backend-store-uri sqlite:///$(VSE_WORK_DIR)/mlflow.db --default-artifact-root $(VSE_WORK_DIR)/mlartifacts
