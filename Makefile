# make demo | test | test-distributed | test-cuda | slow | slow-cuda | everywhere | mutants | check | bench | dist | clean. Each sets up what it needs in .venv, once.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
STAMP := $(VENV)/.installed
# Ray and pyarrow are half a gigabyte, which .venv does without, as most users do.
RAY_VENV := .venv-ray
RAY_BIN := $(patsubst $(VENV)/%,$(RAY_VENV)/%,$(BIN))
RAY_STAMP := $(RAY_VENV)/.installed
# Device "cuda" on Numba's simulator, and its kernels through NVIDIA's compilers.
CUDA_VENV := .venv-cuda
CUDA_BIN := $(patsubst $(VENV)/%,$(CUDA_VENV)/%,$(BIN))
CUDA_STAMP := $(CUDA_VENV)/.installed
# Two processes, each of which begins with half of the files in order, and takes tests from the other when it has done
# its own: what a file's tests share, such as a loaded model, is made twice for few files.
SIDE_BY_SIDE := -n 2 --dist worksteal

# Tests start hundreds of Pythons, each of which would compile all modules of fastattn anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test test-distributed test-cuda slow slow-cuda everywhere mutants check bench dist clean

help:
	@echo "make demo    set up, download three small models, translate and encode something real"
	@echo "make test    set up, run the tests            (ARGS=... goes to pytest)"
	@echo "make test-distributed  the tests of fastattn[ray], in an environment of their own (ARGS=... goes to pytest)"
	@echo "make test-cuda  device \"cuda\" on a simulator, and its kernels compiled for cards, in an environment of their own"
	@echo "make slow    set up, run the tests that take minutes (ARGS=... goes to pytest)"
	@echo "make slow-cuda  every variety of model on that simulator, five minutes"
	@echo "make everywhere  the tests as on other machines: fewer CPU features, no network, ... (ARGS=... names some)"
	@echo "make mutants mutation testing: bugs that no test finds, half an hour (ARGS=... goes to tests/clone/run_mutants.py)"
	@echo "make check   format, lint, types, import table, sizes"
	@echo "make bench   run the benchmarks               (ARGS=... goes to them)"
	@echo "make dist    a wheel and an sdist in dist/, tried out in every installed Python from 3.10 on"
	@echo "make clean   remove build products and caches (the environments and downloaded models stay)"

setup: $(STAMP)

$(STAMP): setup.cfg setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "fastattn needs Python 3.10 or newer, $(PYTHON) is %d.%d; try make PYTHON=python3.12" % v[:2])'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { echo "== making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "== installing fastattn and what it needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e ".[test,check]"
	@touch $@

demo: setup
	@BIN=$(BIN) sh examples/demo.sh

test: setup
	@$(BIN)/python -m pytest $(or $(ARGS),$(SIDE_BY_SIDE))

$(RAY_STAMP): setup.cfg setup.py pyproject.toml
	@$(PYTHON) -m venv $(RAY_VENV)
	@echo "== installing fastattn[ray] into $(RAY_VENV)"
	@$(RAY_BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e ".[test,ray]" "moto[server]>=5"
	@touch $@

test-distributed: $(RAY_STAMP)
	@$(RAY_BIN)/python -m pytest -rs $(or $(ARGS),$(SIDE_BY_SIDE) tests/distributed)

# What compiles for a card without one: 500 MB, of which numba-cuda itself is 2.
$(CUDA_STAMP): setup.cfg setup.py pyproject.toml
	@$(PYTHON) -m venv $(CUDA_VENV)
	@echo "== installing numba-cuda and NVIDIA's compilers into $(CUDA_VENV)"
	@$(CUDA_BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -e ".[test]" "numba-cuda>=0.30" \
		nvidia-cuda-nvcc nvidia-cuda-nvrtc
	@touch $@

test-cuda: $(CUDA_STAMP)
	@NUMBA_ENABLE_CUDASIM=1 $(CUDA_BIN)/python -m pytest $(or $(ARGS),$(SIDE_BY_SIDE) tests/cuda)
	@$(CUDA_BIN)/python -m pytest tests/cuda

slow: setup
	@$(BIN)/python -m pytest -m slow -rs $(ARGS)

slow-cuda: $(CUDA_STAMP)
	@NUMBA_ENABLE_CUDASIM=1 $(CUDA_BIN)/python -m pytest -m slow $(or $(ARGS),$(SIDE_BY_SIDE) tests/cuda)

everywhere: setup
	@$(BIN)/python tests/clone/run_everywhere.py $(ARGS)

mutants: setup
	@$(BIN)/python tests/clone/run_mutants.py $(ARGS)

# mypy knows nothing of package_dir, so it is shown the tree as an installation lays it out.
check: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@rm -rf build/types && mkdir -p build/types/fastattn
	@ln -s $(CURDIR)/fastattn/* $(CURDIR)/weights $(CURDIR)/cli build/types/fastattn/
	@cd build/types && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/setup.cfg --no-incremental
	@$(BIN)/python -m pytest tests/test_imports.py tests/test_package.py tests/test_structure.py

bench: setup
	@$(BIN)/python -m bench $(ARGS)

# The wheel comes out of the sdist, which so has all that building takes. An old egg-info would add files that are gone.
dist: setup
	@rm -rf dist build/lib *.egg-info
	@$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >/dev/null
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist dist/*.tar.gz
	@ls -l dist
	@$(BIN)/python tests/clone/run_installs.py dist/*

clean:
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . \( -name $(VENV) -o -name $(RAY_VENV) -o -name $(CUDA_VENV) \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
