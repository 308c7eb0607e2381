# Two commands on a fresh clone: `make demo` trains on the built-in glyphs, `make test` runs the tests. Both set up .venv.
# What continuous integration runs is here too, and runs on any machine: CONTRIBUTING.md says which is for what.
PYTHON ?= python3
OLDEST ?= python3.10
VENV ?= .venv
# versions to install; empty: the newest of each that this Python has
CONSTRAINTS ?= constraints.txt
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
READY = $(VENV)/.ready
# packages beside the library
WORKBENCH = packages/rankgrad-workbench
BESIDE = $(WORKBENCH) packages/rankgrad-detection papers
INSTALL = $(BIN)/python -m pip install $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
# a worker takes whole files, as the tests of a file share what they make (pytest-xdist 3.8 cannot group under pytest 9.2)
# (and what it compiles serves the hundred processes that tests start, also where the variable is set, as in containers)
# (two workers share the cores: with a thread for each core in both, the threads wait for each other; LightGBM asks joblib)
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} LOKY_MAX_CPU_COUNT=$${LOKY_MAX_CPU_COUNT:-1} $(BIN)/python -m pytest -q -n 2 --dist loadfile $(WARNINGS)

.PHONY: demo test check test-code test-library test-workbench test-detection test-papers test-all coverage test-faults test-browser test-gpu test-oldest test-newest test-install \
	lint docs tables bench bench-gpu dist check-tag clean

demo: $(INSTALLED)
	$(BIN)/rankgrad train

test: check test-code

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-code: $(READY)
	$(PYTEST) -m "not slow"

# those of the library, without the packages beside it, and what tests all: the pages and the benchmarks
test-library: $(READY)
	RANKGRAD_PLUGINS=none $(PYTEST) -m "not slow" --ignore tests/docs --ignore tests/benchmarks tests src

test-workbench: $(READY)
	$(PYTEST) -m "not slow" packages/rankgrad-workbench

test-detection: $(READY)
	$(PYTEST) -m "not slow" packages/rankgrad-detection

test-papers: $(READY)
	$(PYTEST) -m "not slow" papers

test-all: $(READY)
	$(PYTEST)

# which lines of the library no test reaches. What runs in processes that the tests start is not counted
coverage: $(READY)
	$(PYTEST) -m "not slow" --cov rankgrad --cov-report term:skip-covered

# kills, stops, signals, full disks, damaged and hostile files: all of them, the slow ones too
test-faults: $(READY)
	$(PYTEST) -k "kills or stopping or signals or bad_input or nothing_executes"

test-browser: $(READY)
	RANKGRAD_BROWSER=required $(BIN)/python -m pytest -q -k "test_browser or test_site"

# losses, ranks, memories, evaluation, search and detection on a GPU, held to the CPU
test-gpu: $(READY)
	$(BIN)/python -m pytest -q packages/rankgrad-workbench/tests/test_on_device.py --device cuda

# old packages warn of each other; with all other versions a warning is an error
test-oldest:
	$(MAKE) test-code VENV=.venv-oldest PYTHON=$(OLDEST) CONSTRAINTS=constraints-min.txt WARNINGS="-W default"

test-newest:
	$(MAKE) test-code VENV=.venv-newest CONSTRAINTS=

# the library's wheel alone, with torch and numpy; then with each extra alone; then all wheels, with what they need
EXTRAS = baselines torchmetrics lightgbm xgboost sklearn transformers sentence-transformers
test-install: dist
	rm -rf build/fresh
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) dist/rankgrad-*.whl
	build/fresh/bin/python tests/fresh_install.py
	for extra in $(EXTRAS); do \
		rm -rf build/extra && $(PYTHON) -m venv build/extra || exit 1; \
		build/fresh/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > `build/extra/bin/python -c \
			"import sysconfig; print(sysconfig.get_path('purelib'))"`/library.pth; \
		build/extra/bin/python -m pip install --quiet $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) "rankgrad[$$extra]" || exit 1; \
		build/extra/bin/python tests/fresh_install.py --extra $$extra || exit 1; \
	done
	build/fresh/bin/python -m pip install --quiet $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) dist/*.whl
	build/fresh/bin/python tests/fresh_install.py --beside

lint: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -b html docs build/docs

tables: $(READY)
	PYTHONPATH=. $(BIN)/python docs/make_tables.py

# make bench ARGS="long_list --long": a part of it; python -m benchmarks --help lists the options. `make tables` writes the page
ARGS ?= --json benchmarks/results.json --figure benchmarks/scaling.svg
bench: $(READY)
	$(BIN)/python -m benchmarks $(ARGS)

bench-gpu: $(READY)
	$(BIN)/python -m benchmarks --device cuda --json benchmarks/gpu.json --markdown benchmarks/gpu.md

# what is published: wheel and sdist of each package, and a look at them
dist: $(VENV)/.release
	rm -rf dist build/lib $(addsuffix /build,$(BESIDE)) *.egg-info/SOURCES.txt $(addsuffix /src/*.egg-info/SOURCES.txt,$(BESIDE))
	$(BIN)/python -m build
	for package in $(BESIDE); do $(BIN)/python -m build --outdir dist $$package || exit 1; done
	$(BIN)/python -m twine check --strict dist/*
	for wheel in dist/*.whl; do $(BIN)/python -m zipfile --list $$wheel || exit 1; done

# TAG=v1.2.3: is it the version of the code, and does the changelog have it?
check-tag:
	test "$$TAG" = "v$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/rankgrad/_version.py)"
	grep -q "^## \[$${TAG#v}\] - 2" CHANGELOG.md

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# the package itself is installed once, and again only after a change of pyproject.toml. What more it needs is added to it:
# pip would take it away for a moment, and a run of `compare` or `tune` that starts in that moment would not find it
$(INSTALLED): pyproject.toml $(WORKBENCH)/pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV). The largest part is torch. This is done once."
	$(INSTALL) -e . -e ./$(WORKBENCH)
	touch $@

$(READY): $(INSTALLED) $(CONSTRAINTS) $(addsuffix /pyproject.toml,$(BESIDE))
	$(INSTALL) "rankgrad[dev]" $(addprefix -e ./,$(filter-out $(WORKBENCH),$(BESIDE)))
	touch $@

$(VENV)/.release: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade "build>=1.2" "twine>=6.1"
	touch $@

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build $(addsuffix /build,$(BESIDE)) dist *.egg-info $(addsuffix /src/*.egg-info,$(BESIDE))
