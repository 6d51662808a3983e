# make        says what there is to make
# make run    makes an environment, installs, fetches the default model, serves, shows a completion
# make test   installs what the tests need and runs them
#
# VENV names the virtual environment (.venv). PYTHON names the interpreter that makes it; without it
# the first of python3, python3.14, ... that is 3.11 or newer is taken.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup run test check types bench docs clean distclean

VENV ?= .venv
PYTHON ?=
BIN := $(VENV)/bin
BUILD_INPUTS := pyproject.toml $(wildcard setup.py MANIFEST.in packaging/* kernels/native/*.cpp kernels/native/*.h kernels/native/*.hpp)

# Keeps this folder off sys.path, where `kernels/` would be taken for the package of that name.
export PYTHONSAFEPATH := 1

help:  ## this list
	@echo "make TARGET, with TARGET one of"
	@sed -nE 's/^([a-z]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(VENV)/.installed  ## virtual environment with the project in it

run: $(VENV)/.installed  ## daemon, default model and a sample completion; goes on serving (ONCE=1: ends)
	@$(BIN)/swiftspec run $(if $(ONCE),--once)

test: $(VENV)/.installed-test  ## all tests (ARGS="-k name" are passed to pytest)
	$(BIN)/pytest $(ARGS)

check: $(VENV)/.installed-dev types  ## lint, format, types, shell scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	for script in .ci/run $$(find packaging benchmarks -name '*.sh'); do bash -n $$script || exit 1; done

# mypy sees the package as it is installed, with kernels/ and lsp/ inside.
types: $(VENV)/.installed-dev
	rm -rf build/types && mkdir -p build/types/swiftspec_daemon
	cd build/types/swiftspec_daemon && ln -s ../../../swiftspec_daemon/* ../../../kernels ../../../lsp .
	mypy="$$(cd $(BIN) && pwd)/mypy" && cd build/types && \
	  "$$mypy" --config-file ../../pyproject.toml -p swiftspec_daemon

bench: $(VENV)/.installed-bench  ## the basic figures: table, plots and JSON in benchmarks/out/
	@mkdir -p benchmarks/out
	$(BIN)/swiftspec bench basics --json benchmarks/out/basics.json --out benchmarks/out

docs: $(VENV)/.installed  ## the generated parts of docs/reference/
	$(BIN)/python -m swiftspec_daemon.protocol.schema
	$(BIN)/python -m swiftspec_daemon.settings_docs

clean:  ## remove what was built, and caches
	rm -rf build dist benchmarks/out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	rm -f kernels/native/*.so kernels/native/*.dylib
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	rm -f $(VENV)/.installed*

distclean: clean  ## the same, and the virtual environment
	rm -rf $(VENV)

# Each rule marks what its extra includes, so that nothing is built twice.
$(VENV)/.installed: $(BUILD_INPUTS)
	@PYTHON="$(PYTHON)" bash packaging/install.sh $(VENV)
	@touch $@

$(VENV)/.installed-bench: $(BUILD_INPUTS)
	@PYTHON="$(PYTHON)" bash packaging/install.sh $(VENV) bench
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-test: $(BUILD_INPUTS)
	@PYTHON="$(PYTHON)" bash packaging/install.sh $(VENV) test
	@touch $@ $(VENV)/.installed $(VENV)/.installed-bench

$(VENV)/.installed-dev: $(BUILD_INPUTS)
	@PYTHON="$(PYTHON)" bash packaging/install.sh $(VENV) dev
	@touch $@ $(VENV)/.installed $(VENV)/.installed-bench $(VENV)/.installed-test
