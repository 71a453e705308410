# `make demo`, `make check` and `make test` work on a fresh machine: they create their own virtual environment.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# Some CPUs report AMX but do not allow it; bfloat16 matrix products then crash Python. The limit is harmless elsewhere.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: help demo check test lint types docs lock clean

help:
	@echo "make demo   reconstruct terrain from scattered measurements with FNA and three baselines (needs no data set)"
	@echo "make check  lint, type-check and run the tests that are not marked e2e or data, for use while you work"
	@echo "make test   lint, type-check and run all tests"
	@echo "make lint   ruff: lint and formatting"
	@echo "make types  mypy on the installed package"
	@echo "make docs   build the documentation site in build/site; warnings are errors"
	@echo "make lock   write requirements.lock again, from constraints.txt and PyPI"
	@echo "make clean  remove the virtual environment and all build output"

$(VENV)/installed: pyproject.toml constraints.txt $(wildcard setup.py)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch -e '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/fna-lightning demo --out runs/demo

check: lint types
	$(BIN)/pytest -m "not e2e and not data" --numprocesses auto --dist worksteal

test: lint types
	$(BIN)/pytest --numprocesses auto --dist worksteal

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy cannot follow the package-dir mapping of an editable install (see pyproject.toml), so it checks a regular one.
types: $(VENV)/installed
	rm -rf build/typed build/lib*
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/typed .
	cd build/typed && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p fna_lightning

# The variable turns off an advertisement that the theme prints in every build. With --quiet, --strict would miss warnings.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Pins for all extras and platforms: the versions of constraints.txt, and what torch from PyPI needs on each platform.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv
	build/lock/bin/uv pip compile pyproject.toml --all-extras --constraints constraints.txt --generate-hashes \
	    --universal --python-version 3.11.5 --default-index https://pypi.org/simple --no-config --no-build \
	    --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
