# Each target does all its set-up itself: a venv in .venv, the pinned packages, an editable install. The second time
# costs nothing. Knobs: PYTHON (3.11 or newer), EXPERIMENT, JOBS (test processes), PIP_ARGS (passed to pip install: an
# index of CPU-only PyTorch builds, say).
PYTHON ?= python3
EXPERIMENT ?= experiments/ladder-tiny.yaml
JOBS ?= 2
PIP_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
LAB := $(VENV)/.lab
comma := ,
EXTRAS := dev$(if $(shell command -v nvidia-smi 2>/dev/null),$(comma)gpu)

# Notebooks run as tests: errors everywhere, outputs only where a cell says NBVAL_CHECK_OUTPUT.
NBVAL := --nbval-lax --nbval-current-env --nbval-sanitize-with nbval.cfg --nbval-cell-timeout 300

.PHONY: ladder test lab check clean

ladder: $(COMPILED)  ## every rung through its notebook, measured, checked and drawn
	$(BIN)/openjev-lab ladder $(EXPERIMENT)

test: $(COMPILED) check  ## lint, types, unit tests, notebooks
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadscope --durations 15 $(NBVAL) tests notebooks

check: $(STAMP)  ## lint and types alone
	$(BIN)/ruff check .
	$(BIN)/mypy

lab: $(COMPILED) $(LAB)  ## JupyterLab on the notebooks
	$(BIN)/jupyter lab --notebook-dir . notebooks

clean:  ## the venv and every cache; reports stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find openjev_lab kernels tests notebooks -name __pycache__ -type d -prune -exec rm -rf {} +

# A machine whose Python already has PyTorch (a GPU box's image) lends it to the venv, and only what is missing is
# installed. Any other machine gets the releases of constraints.txt.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=..." >&2; exit 1; }
	@if $(PYTHON) -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; then \
	  set -x; $(PYTHON) -m venv --system-site-packages $(VENV) && $(BIN)/python -m pip install -q $(PIP_ARGS) -e '.[$(EXTRAS)]'; \
	else \
	  set -x; $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q $(PIP_ARGS) -c constraints.txt -e '.[$(EXTRAS)]'; \
	fi
	@touch $@

# Apart, because what JupyterLab brings along makes every kernel that draws start more than a second later.
$(LAB): $(STAMP)
	$(BIN)/python -m pip install -q $(PIP_ARGS) -e '.[lab]'
	@touch $@

# The CPU kernels of every rung, compiled once for each time that they change: no measurement waits for a compiler.
$(COMPILED): $(STAMP) $(wildcard kernels/*/*.py openjev_lab/ops/numba_*.py)
	$(BIN)/openjev-lab compile
	@touch $@
