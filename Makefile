# Two commands on a fresh clone: `make demo` trains on the built-in glyphs, `make test` runs the tests. Both set up .venv.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test test-all lint docs tables bench bench-gpu wheel clean

demo: $(READY)
	$(BIN)/rankgrad train

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not slow"

test-all: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

lint: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -b html docs build/docs

tables: $(READY)
	$(BIN)/python docs/make_tables.py

bench: $(READY)
	$(BIN)/rankgrad bench --json benchmarks/results.json --markdown benchmarks/README.md --figure benchmarks/scaling.svg

bench-gpu: $(READY)
	$(BIN)/rankgrad bench --device cuda --json benchmarks/gpu.json --markdown benchmarks/gpu.md

wheel: $(READY)
	$(BIN)/python -m build --wheel

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build dist *.egg-info
