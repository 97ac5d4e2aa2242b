# make sweep   set everything up in .venv, then run sweeps/quickstart.yaml on whatever is there
# make test    set everything up, then run the tests
# make lint    ruff, mypy --strict, import-linter
# make venv    the set-up alone
#
# PYTHON=python3.12        which Python makes the environment
# TORCH=torch==2.11.0      which torch is installed on a host without a GPU
# SPEC=sweeps/full.yaml    what `make sweep` runs
# DB=orch.db               where its results go
# TESTS="-m 'not deepspeed'"   arguments for pytest

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
SPEC   ?= sweeps/quickstart.yaml
DB     ?= orch.db
TESTS  ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install

# A GPU host keeps the torch that PYTHON already has: it fits the driver, a fresh one may not.
HAS_GPU   := $(shell nvidia-smi -L >/dev/null 2>&1 && echo yes)
HAS_TORCH := $(if $(HAS_GPU),$(shell $(PYTHON) -c 'import torch' >/dev/null 2>&1 && echo yes))
VENV_OPTIONS := $(if $(HAS_TORCH),--system-site-packages)

.PHONY: sweep test lint format venv docs clean
.DELETE_ON_ERROR:

sweep: $(VENV)/.run
	-$(BIN)/orch doctor --brief --db $(DB)
	$(BIN)/orch sweep $(SPEC) --db $(DB)
	@echo 'for the commands above: . $(BIN)/activate'

test: $(VENV)/.test
	$(BIN)/python -m pytest $(TESTS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

venv: $(VENV)/.test

docs: $(VENV)/.test
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/database.py
	$(BIN)/python docs/findings.py

$(VENV)/.torch:
	$(PYTHON) -m venv $(VENV_OPTIONS) $(VENV)
	$(PIP) --quiet setuptools wheel
	$(if $(HAS_GPU),,$(PIP) "$(TORCH)")
	touch $@

$(VENV)/.run: $(VENV)/.torch setup.cfg pyproject.toml
	$(PIP) --no-build-isolation --editable ".[worker,html]"
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) --no-build-isolation --editable ".[worker,postgres,ray,html,test]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
