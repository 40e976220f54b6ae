PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLAGS := $(if $(QUICK),--quick)

.PHONY: reproduce test reference lint bench clean

reproduce: $(VENV)/.base
	@echo "On two idle cores this takes about $(if $(QUICK),4,22) minutes; interrupted, it goes on where it was."
	$(BIN)/python -m simulations verify --executor processes $(FLAGS)
	$(BIN)/python -m paper_figures $(FLAGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# The trainers in environments of their own, because their pins conflict; a test skips where its environment cannot be had.
reference: $(VENV)/.test
	-$(MAKE) .venv-trl/.made
	-$(MAKE) .venv-verl/.made
	$(BIN)/python -m pytest -m reference -rs -s tests

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks --out benchmarks/RESULTS.md

clean:
	rm -rf $(VENV) .venv-trl .venv-verl results results-quick report report-quick

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

.venv-trl/.made:
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check numpy trl==1.16.0
	@touch $@

.venv-verl/.made:
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check \
	    numpy tensordict==0.10.0 'ray>=2.41' omegaconf packaging 'transformers<5.11' codetiming torchdata
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1
	@touch $@
