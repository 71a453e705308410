# Everything a fresh machine needs: `make demo` and `make test` make their own virtual environment.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# some CPUs advertise AMX and refuse it, and bfloat16 products then end Python; harmless elsewhere
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

DEMO = reviews_fna.yaml reviews_dp.yaml reviews_uniform.yaml

.PHONY: help demo test lint types docs lock clean

help:
	@echo "make demo   train FNA and its controls on the embedded reviews (no data needed)"
	@echo "make test   lint, type-check and run all tests"
	@echo "make lint   ruff"
	@echo "make types  mypy on the package as it is installed"
	@echo "make docs   the documentation site, in build/site; a warning is an error"
	@echo "make lock   requirements.lock anew, from constraints.txt and PyPI"
	@echo "make clean  remove the environment and everything built"

$(VENV)/installed: pyproject.toml constraints.txt $(wildcard setup.py)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch -e '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/fna-lightning sweep $(addprefix --config ,$(DEMO)) --out runs/demo

test: lint types
	$(BIN)/pytest --numprocesses auto --dist worksteal

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# a type checker cannot follow the mapping of an editable install (see pyproject.toml), so it reads a real one
types: $(VENV)/installed
	rm -rf build/typed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/typed .
	cd build/typed && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p fna_lightning

# the theme advertises its successor on every build
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# every extra, every platform: what constraints.txt pins, and what PyPI's torch needs beside it on each system
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv
	build/lock/bin/uv pip compile pyproject.toml --all-extras --constraints constraints.txt --generate-hashes \
	    --universal --python-version 3.11.5 --default-index https://pypi.org/simple --no-config --no-build \
	    --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
