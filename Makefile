# make demo: set up and run the demo.  make test: set up and run the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-browser check format bench results figures clean

demo: $(VENV)/.installed
	$(BIN)/windward demo

test: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

test-slow: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist loadfile -m slow

test-browser: $(VENV)/.installed-dev
	$(BIN)/pytest -m browser tests/studies

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed
	$(BIN)/windward bench linear
	$(BIN)/windward bench simulator
	$(BIN)/windward bench overhead
	$(BIN)/windward bench diagnose
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[sb3]'
	$(BIN)/windward bench train

results: $(VENV)/.installed
	$(BIN)/windward run lds-low
	$(BIN)/windward run regret-rate
	$(BIN)/windward run dimension
	$(BIN)/windward run headroom-linear
	$(BIN)/python tools/keep.py out/studies/*-laptop

figures: $(VENV)/.installed
	$(BIN)/python docs/disturbances.py

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "windward needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .jax_cache .pytest_cache .mypy_cache .ruff_cache out
