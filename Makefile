# `make demo` and `make test` do everything on a machine with python3 >= 3.11 and pip. `make help` lists the rest.
#   PYTHON=python3.12   the interpreter that .venv is made from
#   VENV=/some/folder   another place for the environment
#   PY=python3          an interpreter that has what it needs: nothing is created or installed
#   DSL=4.7.0           for `make test`: another version of the DSL, in an environment of its own within .venv
PYTHON  ?= python3
VENV    ?= .venv
PROFILE ?= quick
ARGS    ?=

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

ifdef PY
RUN :=
TESTS :=
DEV :=
TRITON :=
ORACLE :=
NVCC ?= $(shell command -v nvcc)
else
PY  := $(VENV)/bin/python
RUN := $(VENV)/.run
TESTS := $(VENV)/.tests
DEV := $(VENV)/.dev
TRITON := $(VENV)/.triton
ORACLE := $(VENV)/.oracle
endif
NVCC ?= $(VENV)/nvcc/nvidia/cu13/bin/nvcc

DEPENDENCIES := pyproject.toml constraints.txt .ci/environment .ci/requirements

$(VENV)/.run: $(DEPENDENCIES)
	PYTHON=$(PYTHON) .ci/environment $(VENV) dsl
	touch $@

$(VENV)/.tests: $(DEPENDENCIES) constraints-no-deps.txt
	PYTHON=$(PYTHON) .ci/environment $(VENV) tests
	$(VENV)/bin/python -m pip install -q --no-compile --no-deps -r constraints-no-deps.txt
	touch $@ $(VENV)/.run

# With what `make test` can do without: linters, types, the documentation's site, Jupyter, a browser's driver.
$(VENV)/.dev: $(VENV)/.tests
	PYTHON=$(PYTHON) .ci/environment $(VENV) dev
	touch $@ $(VENV)/.tests $(VENV)/.run

# Its wheel has 286 MB, and only the integration tests launch its kernels. A torch for CUDA brings its own.
$(VENV)/.triton: $(DEV)
	$(PY) -c 'import sys, torch; sys.exit(torch.version.cuda is None)' || $(PY) -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt triton
	touch $@

# Beside the environment's packages, not among them: a torch for CUDA brings packages of the same names.
$(VENV)/.oracle: constraints-oracle.txt $(DEV)
	$(PY) -m pip install -q --no-deps --upgrade --target $(VENV)/oracle -r constraints-oracle.txt
	touch $@

$(VENV)/nvcc/nvidia/cu13/bin/nvcc: constraints-nvcc.txt $(DEV)
	$(PY) -m pip install -q --no-deps --upgrade --target $(VENV)/nvcc -r constraints-nvcc.txt
	touch $@

$(VENV)/dsl-%/.made: .ci/dsl $(TESTS)
	.ci/dsl $(VENV) $* $(@D)
	touch $@

ifdef DSL
TEST_PY = $(VENV)/dsl-$(DSL)/bin/python
else
TEST_PY = $(PY)
endif

.PHONY: help
help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1 \2/p' $(MAKEFILE_LIST) | while read -r name text; do printf 'make %-16s %s\n' "$$name" "$$text"; done

.PHONY: demo
demo: $(RUN)  ## check layouts, then compile, check and run the GEMM, on a Hopper GPU or simulated
	$(PY) -m cutepy demo $(ARGS)

PYTEST = -m pytest -n auto --maxprocesses=8 --dist=worksteal --hypothesis-profile=$(PROFILE)

# Many processes import the same modules, so their bytecode is kept, whatever the environment says.
.PHONY: test
test: export PYTHONDONTWRITEBYTECODE :=
test: $(TESTS) $(if $(DSL),$(VENV)/dsl-$(DSL)/.made)  ## run the quick tests of every room, on up to 8 cores; at least 200 examples a property
	$(TEST_PY) $(PYTEST) -m "not deep and not integration" $(ARGS)

.PHONY: test-integration
test-integration: export PYTHONDONTWRITEBYTECODE :=
test-integration: $(DEV) $(TRITON) $(if $(DSL),$(VENV)/dsl-$(DSL)/.made)  ## run the tests that cost more: they compile kernels and C++, drive a browser or start many processes
	$(TEST_PY) $(PYTEST) -m "not deep and integration" $(ARGS)

.PHONY: costs
costs: $(DEV) $(TRITON)  ## measure all tests, and write which ones are left to `make check`, to tests/costly.txt, and to `make test-deep`, to tests/dear.txt
	$(PY) $(PYTEST) -m "not deep" -p tests.budget --note-costs $(ARGS)

.PHONY: messages
messages: $(DEV)  ## write the texts that tests pin, of all folders or ARGS="tests/layouts", to the messages.txt in each folder
	$(PY) $(PYTEST) -m "not deep" --rewrite-messages $(ARGS)

.PHONY: test-deep
test-deep: $(DEV)  ## run the properties with 20,000 examples each, and the slow tests
	$(PY) -m pytest -n auto --hypothesis-profile=deep -m "hypothesis or deep" -o timeout=3600 -o faulthandler_timeout=0 $(ARGS)

.PHONY: certify-trial
certify-trial: $(DEV)  ## compare certificates of random programs with exhaustive search, for 10 minutes
	nice -n 10 $(PY) -m tests.sim.sanitize.certificate.trial 600 $(ARGS)

.PHONY: oracle
oracle: $(DEV) $(ORACLE)  ## draw fresh random cases and compare with C++ CuTe (needs g++)
	PYTHONPATH=$(VENV)/oracle $(PY) -m tests.oracle $(ARGS)

.PHONY: oracle-pictures
oracle-pictures: $(DEV) $(ORACLE)  ## compare pictures with those of C++ CuTe's print_latex (needs g++)
	PYTHONPATH=$(VENV)/oracle $(PY) -m tests.oracle.pictures $(ARGS)

.PHONY: nvcc
nvcc: $(DEV) $(filter $(VENV)/%,$(NVCC))  ## run kernels of CUDA C++ in the simulator (needs g++; NVCC=/path/to/nvcc takes that one)
	CUTEPY_TEST_NVCC=1 NVCC=$(abspath $(NVCC)) $(PY) -m pytest -n auto --maxprocesses=8 -o timeout=1800 -o faulthandler_timeout=0 tests/nvcc $(ARGS)

.PHONY: mutation
mutation: $(DEV)  ## change one operator or constant at a time, ARGS="cutepy/host --count 60", and list what no test notices
	$(PY) -m tests.mutation $(ARGS)

.PHONY: fuzz
fuzz: $(DEV)  ## change texts of real kernels, try random statements, and make random programs, which run beside another interpreter; ARGS="--count 5000 --seed 1 --ptxas"
	$(PY) -m tests.sim.fuzz texts $(ARGS)
	$(PY) -m tests.sim.fuzz statements $(ARGS)
	$(PY) -m tests.sim.fuzz programs $(ARGS)

.PHONY: mutants
mutants: $(DEV)  ## change one synchronisation of kernels at a time, ARGS="gemm handwritten", and list what the sanitizer passes over
	$(PY) -m tests.sim.mutants $(ARGS)

.PHONY: fit
fit: $(DEV)  ## fit the choice of tiles to the journals in tests/kernels/timed (needs CatBoost), ARGS="JOURNAL ..." for more
	$(PY) -m tests.kernels.fitting kernels/gemm/heuristic/trees.json $(ARGS)

.PHONY: bench
bench: $(RUN)  ## time the GEMM against cuBLAS on a Hopper GPU
	$(PY) -m cutepy bench gemm $(ARGS)

.PHONY: bench-layouts
bench-layouts: $(DEV)  ## time the layout algebra against pycute
	$(PY) -m tests.layouts.bench_pycute $(ARGS)

.PHONY: check
check: static  ## lint, types, layers, doctests, this site, the integration tests
	$(MAKE) --no-print-directory test-integration

.PHONY: static
static: $(DEV)  ## lint, types, layers, doctests, this site
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target site types doctests lint

.PHONY: lint types doctests site
lint types doctests site: $(DEV)
lint:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -c 'from importlinter.cli import lint_imports_command as lint; lint()' --no-cache

types:
	$(PY) -m mypy

doctests:
	$(PY) -m pytest -q --hypothesis-profile=ci --doctest-modules --doctest-ignore-import-errors cutepy

# Not --quiet: with it MkDocs counts no warnings, and --strict finds nothing.
site:
	SITE_WHOLE=false NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

.PHONY: format
format: $(DEV)  ## rewrite the sources in the one format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

.PHONY: docs
docs: $(DEV)  ## serve the documentation at http://127.0.0.1:8000
	$(PY) -m mkdocs serve

.PHONY: docs-hazards
docs-hazards: $(RUN)  ## run the kernels on the pages of hazards, and write what is reported of them (ARGS="KIND" for one)
	$(PY) -m tests.docs.hazard_pages $(ARGS)

.PHONY: clean
clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist site mutants *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
