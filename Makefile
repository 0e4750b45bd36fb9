# Every target but help, clean and lock first sets up what it needs; see tools/setup.py.
PYTHON ?= python3
BIN := .venv/bin
# Twice two cores: half of the tests wait for servers, clocks and children while others compute.
PARALLEL ?= 4
BENCHMARKS := $(filter-out _%,$(basename $(notdir $(wildcard benchmarks/*.py))))
ONLY ?= $(BENCHMARKS)

# Tests start hundreds of Python processes: without bytecode each of them compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-long campaign check docs bench lock clean
.DEFAULT_GOAL := help

# make rebuilds a file it includes when that is older than what it depends on, then reads it: this is the whole set-up.
# An environment of another version of Python than PYTHON is set up again.
ifneq ($(filter-out help clean lock,$(MAKECMDGOALS)),)
ASKED := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
FOUND := $(shell sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' .venv/pyvenv.cfg 2>/dev/null)
ifneq ($(ASKED),$(or $(MAKE_RESTARTS:%=$(ASKED)),$(FOUND)))
$(shell rm -f .venv/env.mk)
endif
include .venv/env.mk
endif
.venv/env.mk: requirements.lock requirements-java.lock pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

run: ## Run the demonstration
	@$(BIN)/strandline demo

test: ## Run the tests (ARGS="-k name" narrows them)
	$(BIN)/pytest -n $(PARALLEL) -m "not long and not campaign" $(ARGS)

test-long: ## Run all tests, those that take minutes included
	HYPOTHESIS_PROFILE=long $(BIN)/pytest -n $(PARALLEL) -m "not campaign" $(ARGS)

campaign: ## Run a campaign, which may take hours, and write its row of docs/campaigns.md (ONLY=soak; without, list them)
ifeq ($(origin ONLY),file)
	@awk -F '|' '/^## Last runs/ { exit } /^\| `/ { print $$2 "-" $$3 }' docs/campaigns.md
else
	HYPOTHESIS_PROFILE=long STRANDLINE_CAMPAIGN=$(ONLY) $(BIN)/pytest -q -p no:cacheprovider $(ARGS)
endif

check: ## Lint, formatting, types, layers, tidiness
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_tidy.py
	$(BIN)/pip check
	@$(BIN)/python -m tools.docs
	@$(BIN)/python -m tools.places_to_look

docs: ## Build the documentation and the API reference into .site/html
	@$(BIN)/python -m tools.docs

bench: ## Run the benchmarks and write docs/benchmarks.md (ONLY=journal runs one and writes its table)
	@mkdir -p .bench
	@set -e; for name in $(ONLY); do $(BIN)/python -m benchmarks.$$name; done
	@$(BIN)/python -m benchmarks._page

lock: ## Resolve the dependencies again and write the lock files
	PYTHON=$(PYTHON) tools/lock.sh

clean: ## Remove the environment, caches and results
	rm -rf .venv .site .bench .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist
	find src tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +
