PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLAGS := $(if $(QUICK),--quick)

.PHONY: reproduce test lint bench clean

reproduce: $(VENV)/.base
	$(BIN)/python -m simulations verify $(FLAGS)
	$(BIN)/python -m paper_figures $(FLAGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks --out benchmarks/RESULTS.md

clean:
	rm -rf $(VENV) results results-quick report report-quick

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or later is needed: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.%: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
