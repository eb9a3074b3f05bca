# Tallystick. `make` alone lists the targets; every target sets up whatever is missing.
PYTHON  ?= $(shell command -v python3.11 || command -v python3)
PROFILE ?= cpu
VENV    := .venv
BIN     := $(VENV)/bin
# A CPU build of torch comes from a folder of wheels when there is one (PIP_FIND_LINKS), else from PyTorch's own index.
TORCH   := $(if $(PIP_FIND_LINKS),--find-links "$(PIP_FIND_LINKS)",--extra-index-url https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match)
# A file stays in one process, which makes what its tests share once; in the order of the folders the last files are short ones.
PYTEST  := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu and not bench" --durations=15
READY   := $(VENV)/.ready-$(PROFILE)

.DEFAULT_GOAL := help
.PHONY: help demo test check fix cover bench slow db dagster ui gateway docs lock system clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */\1\t/' | awk -F'\t' '{printf "  make %-9s %s\n", $$1, $$2}'

$(READY): pyproject.toml .locks/$(PROFILE).txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check uv==0.13.8
	$(BIN)/uv pip install -q --no-deps --compile-bytecode --python $(BIN)/python $(TORCH) -r .locks/$(PROFILE).txt
	$(BIN)/uv pip install -q --no-deps --python $(BIN)/python -e .
	@touch $@

system:
	@.ci/system

demo: $(READY)  ## the whole path: tasks, rollouts, verdicts, rewards, and a policy trained on them; a second run adds nothing
	$(BIN)/tally demo

test: $(READY) system check  ## everything that must pass: style, types, layers and the fast tests
	$(PYTEST)

check: $(READY)  ## style, types and layers only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(READY)  ## mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

cover: $(READY)  ## the fast tests with line and branch coverage
	$(PYTEST) --cov --cov-branch --cov-report=term-missing:skip-covered

slow: $(READY) system  ## the slow tests
	$(BIN)/python -m pytest -m "slow and not gpu"

bench: $(READY)  ## benchmarks
	$(BIN)/python -m pytest -m bench -s -q tests/benchmarks

db: $(READY)  ## start the database and bring it to this release's schema
	$(BIN)/tally db start
	$(BIN)/tally migrate

dagster: $(READY)  ## the asset graph in the browser
	$(BIN)/tally dagster

ui: $(READY)  ## rewards, traces and disagreements in the browser
	$(BIN)/tally ui

gateway: $(READY)  ## the capture proxy
	$(BIN)/tally gateway

docs: $(READY)  ## write docs/commands.md from the commands themselves
	$(BIN)/python -m tests.write_docs

lock: $(READY)  ## resolve the pins again
	$(BIN)/uv pip compile pyproject.toml --extra cpu --extra dev --python-version 3.11 -q --no-header --no-annotate --no-emit-find-links $(TORCH) -o .locks/cpu.txt
	$(BIN)/uv pip compile pyproject.toml --extra dev --python-version 3.11 -q --no-header --no-annotate --no-emit-find-links $(TORCH) -c .locks/cpu.txt -o .locks/light.txt

clean:  ## stop the servers of this folder and remove the environment; the ledger stays
	-$(BIN)/tally stop
	rm -rf $(VENV)
