PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLAGS := $(if $(QUICK),--quick)
# Where an environment forbids Python's bytecode, each process would compile all that it imports: six seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: environment reproduce test plain bounds mutants oldest newest generic reference browser lint wheel release bench docs clean

reproduce: $(VENV)/.base
	@echo "On two idle cores this takes about $(if $(QUICK),5,40) minutes, on older ones longer; interrupted, it goes on where it was."
	$(BIN)/python -m simulations verify --executor processes $(FLAGS)
	$(BIN)/python -m paper_figures $(FLAGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# Kernels as plain Python, as people debug them.
KERNEL_TESTS := $(addprefix tests/test_,trainers.py multisets.py)
plain: $(VENV)/.test
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -m "not reference and not compiled" $(KERNEL_TESTS)

# Drivers with every index checked, which numba's cache does not tell from drivers without.
bounds: $(VENV)/.test
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)/checked $(BIN)/python -m pytest -q tests/test_simulated_gradients.py tests/test_streams.py -k 'not billion and not 4096 and not couple'

# Faults put into the code on purpose: each must be seen by the tests that are named beside it.
mutants: $(VENV)/.test
	$(BIN)/python tools/mutants.py

# The tests with the oldest versions that setup.cfg allows, and with the newest there are, each in an environment of its own.
# Matplotlib 3.9 calls names of pyparsing's that warn from 3.3 on; both were new in the same year.
OLD_OR_NEW := -n auto --dist loadfile --no-loadscope-reorder -p no:cacheprovider
oldest:
	rm -rf $(VENV)-oldest
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)-oldest/bin/uv pip install --quiet --python $(VENV)-oldest/bin/python --resolution lowest-direct --editable '.[test]' 'pyparsing>=3.1,<3.3'
	NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)-oldest/numba $(VENV)-oldest/bin/python -m pytest $(OLD_OR_NEW)

newest:
	rm -rf $(VENV)-newest
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager --editable '.[test]'
	NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)-newest/numba $(VENV)-newest/bin/python -m pytest $(OLD_OR_NEW)

# Kernels, simulators and laws compiled for the plainest processor of this kind, whose lanes are short: numbers are the same.
GENERIC_TESTS := $(addprefix tests/test_,multisets.py simulated_gradients.py simulated_training.py streams.py)
generic: $(VENV)/.test
	NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES= NUMBA_CACHE_DIR=$(CURDIR)/$(VENV)/generic $(BIN)/python -m pytest -q $(GENERIC_TESTS)

# The wheel alone in an environment of its own, used from another folder, where nothing of the checkout is found.
wheel:
	rm -rf build dist $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd / && $(CURDIR)/$(VENV)-wheel/bin/python $(CURDIR)/tools/use_wheel.py
	@du -h dist/*.whl

# What a release attaches, checked: the wheel and the source, of which a wheel can be made.
release: $(VENV)/.release
	rm -rf build dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m check_wheel_contents dist/*.whl
	@du -h dist/*

# The trainers in environments of their own, because their pins conflict; a test skips where its environment cannot be had.
reference: $(VENV)/.test
	-$(MAKE) .venv-trl/.made
	-$(MAKE) .venv-verl/.made
	$(BIN)/python -m pytest -m reference -rs -s tests

# The report, full or quick, and the site in Chromium, which must be there with its driver (on Debian: chromium, chromium-driver).
browser: docs $(VENV)/.test $(VENV)/.browser
	$(BIN)/python -m pytest -q -m browser -rs tests/test_browser.py

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Figures are drawn from the tables of a run, full or quick, if there is one.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "documentation: docs/_build/html/index.html"

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks > $(VENV)/bench.md
	mv $(VENV)/bench.md benchmarks/RESULTS.md

clean:
	rm -rf $(VENV) $(VENV)-wheel $(VENV)-oldest $(VENV)-newest .venv-trl .venv-verl build dist results results-quick report report-quick docs/_build docs/generated

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or later is needed: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# All that the gate needs, at once: by uv, which takes a tenth of pip's time, or where it finds no packages by pip.
environment: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[test,lint,docs]' || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,lint,docs]'
	@touch $(addprefix $(VENV)/.,base test lint docs)

$(VENV)/.base: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.%: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

.venv-trl/.made:
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-trl/bin/python -m pip install --quiet --disable-pip-version-check numpy trl==1.16.0 --editable .
	@touch $@

.venv-verl/.made:
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check \
	    numpy tensordict==0.10.0 'ray>=2.41' omegaconf packaging 'transformers<5.11' codetiming torchdata
	.venv-verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1
	@touch $@
