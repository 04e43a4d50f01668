# Every target works in its own .venv, made from requirements.txt and renewed when that changes.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed
PEERS := .venv/.peers

.PHONY: run test test-slow parity lint types format bench lock

run: $(INSTALLED)  ## the whole system on this machine; options in ARGS="--seed 1"
	$(BIN)/python launch/local.py $(ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest -q -m "not slow" $(ARGS)

test-slow: $(INSTALLED)  ## pytest's exit code 5 means that there are none
	$(BIN)/python -m pytest -q -m slow $(ARGS) || test $$? -eq 5

parity: $(PEERS)  ## against transformers on PyTorch, which nothing else needs
	$(BIN)/python -m pytest -q tests/parity $(ARGS)

lint: $(INSTALLED) types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED)
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

bench: $(PEERS)  ## the model beside PyTorch's, one JSON line each
	$(BIN)/python benchmarks/model.py $(ARGS)

lock:  ## needs uv; keeps what is pinned unless ARGS=--upgrade
	uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
		--custom-compile-command "make lock" --annotation-style line \
		--extra dev --extra gemini setup.cfg --output-file requirements.txt $(ARGS)

$(INSTALLED): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
		echo "$(PYTHON) is no Python 3.11 to 3.13; name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(PEERS): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		sentencepiece torch==2.13.0 "transformers>=5"
	@touch $@
