# make demo | quick | test | test-distributed | test-cuda | slow | slow-cuda | everywhere | mutants | check | docs | ci | bench |
# dist | kernels | clean
# Each sets up what it needs in .venv, once.
PYTHON ?= python3
VENV := .venv
# Ray and pyarrow are half a gigabyte, which .venv does without, as most users do.
RAY_VENV := .venv-ray
# Device "cuda" on Numba's simulator, and its kernels through NVIDIA's compilers.
CUDA_VENV := .venv-cuda
PROGRAMS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(PROGRAMS)
RAY_BIN := $(RAY_VENV)/$(PROGRAMS)
CUDA_BIN := $(CUDA_VENV)/$(PROGRAMS)

# The suite is a queue of parts, folders of tests/, for two workers, the longest first. PARTS have one each; `rest` has
# the others and tests/ itself. `make -O` prints what a part says when it ends; make 3.81, macOS's, has no such option.
PARTS := runtime weights kernels decoding user_functions clone cli models array_attention
REST := $(filter-out $(PARTS:%=tests/%/) tests/cuda/ tests/distributed/,$(wildcard tests/*/)) $(wildcard tests/test_*.py)
QUEUE := $(MAKE) --no-print-directory --keep-going --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# Hypothesis draws the same examples each time; with ARGS, as when a test is worked on, it draws others.
SAME := --hypothesis-profile=same -p no:cacheprovider

# Tests start hundreds of Pythons, each of which would compile all modules of fastattn anew.
export PYTHONDONTWRITEBYTECODE :=
# What is known of unchanged code outlives a clone: mypy's cache, and what NVIDIA's compilers have taken.
export FASTATTN_PROVEN ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fastattn-proven

.PHONY: help setup demo quick test test-quick test-rest test-distributed test-cuda test-cuda-simulator \
	test-cuda-compilers slow slow-cuda everywhere mutants check docs docs-serve ci bench dist kernels clean $(PARTS:%=test-%)

help:
	@echo "make demo    set up, download three small models, translate and encode something real"
	@echo "make quick   before a commit, in a minute: check, and the tests that the change is likely to break"
	@echo "make test    set up, run the tests            (ARGS=... goes to pytest)"
	@echo "make test-distributed  the tests of fastattn[ray], in an environment of their own (ARGS=... goes to pytest)"
	@echo "make test-cuda  device \"cuda\" on a simulator, and its kernels compiled for cards, in an environment of their own"
	@echo "make slow    set up, run the tests that take minutes (ARGS=... goes to pytest)"
	@echo "make slow-cuda  every variety of model on that simulator, five minutes"
	@echo "make everywhere  the tests as on other machines: fewer CPU features, no network, ... (ARGS=... names some)"
	@echo "make mutants mutation testing: bugs that no test finds, half an hour (ARGS=... goes to tests/clone/run_mutants.py)"
	@echo "make check   format, lint, types"
	@echo "make docs    the site of docs/ in build/site, with every link checked; make docs-serve shows it"
	@echo "make ci      all that has to pass before a change goes in: check and the three suites, side by side"
	@echo "make bench   run the benchmarks               (ARGS=... goes to them)"
	@echo "make dist    a wheel and an sdist in dist/, tried out in every installed Python from 3.10 on"
	@echo "make kernels  a wheel in dist/ with all kernels, compiled for six kinds of CPU, ten minutes"
	@echo "make clean   remove build products and caches (the environments and downloaded models stay)"

# $(call environment,FOLDER,REQUIREMENTS): uv installs in seconds what takes pip a minute, where it can be had.
define environment
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "fastattn needs Python 3.10 or newer, $(PYTHON) is %d.%d; try make PYTHON=python3.12" % v[:2])'
	@echo '== installing $(2) into $(1)'
	@$(PYTHON) -m venv $(1)
	@{ $(1)/$(PROGRAMS)/python -m pip install $(QUIET) uv && $(1)/$(PROGRAMS)/python -m uv pip install --quiet \
		--python $(1) $(2); } 2>/dev/null || $(1)/$(PROGRAMS)/python -m pip install $(QUIET) $(2)
	@touch $(1)/.installed
endef
QUIET := --quiet --quiet --disable-pip-version-check

NEEDED := -e ".[test,check,docs]"
RAY_NEEDED := -e ".[test,ray]" "moto[server]>=5"
# What compiles for a card without one: 500 MB, of which numba-cuda itself is 2.
CUDA_NEEDED := -e ".[test]" "numba-cuda>=0.30" "numpy<2.5" nvidia-cuda-nvcc nvidia-cuda-nvrtc

$(VENV)/.installed: setup.cfg setup.py pyproject.toml
	$(call environment,$(VENV),$(NEEDED))

$(RAY_VENV)/.installed: setup.cfg setup.py pyproject.toml
	$(call environment,$(RAY_VENV),$(RAY_NEEDED))

$(CUDA_VENV)/.installed: setup.cfg setup.py pyproject.toml
	$(call environment,$(CUDA_VENV),$(CUDA_NEEDED))

setup: $(VENV)/.installed

demo: setup
	@BIN=$(BIN) sh examples/demo.sh

quick: setup
	@$(QUEUE) check test-quick

test-quick: setup
	@$(BIN)/python tests/clone/run_quick.py $(SAME)

test: setup
	@$(if $(ARGS),$(BIN)/python -m pytest $(ARGS),$(QUEUE) $(PARTS:%=test-%) test-rest)

$(PARTS:%=test-%): test-%: setup
	@$(BIN)/python -m pytest $(SAME) tests/$*

test-rest: setup
	@$(BIN)/python -m pytest $(SAME) $(REST)

test-distributed: $(RAY_VENV)/.installed
	@$(RAY_BIN)/python -m pytest -rs $(or $(ARGS),$(SAME) tests/distributed)

test-cuda: test-cuda-simulator test-cuda-compilers

test-cuda-simulator: $(CUDA_VENV)/.installed
	@NUMBA_ENABLE_CUDASIM=1 $(CUDA_BIN)/python -m pytest $(or $(ARGS),$(SAME) tests/cuda)

test-cuda-compilers: $(CUDA_VENV)/.installed
	@$(CUDA_BIN)/python -m pytest -rs $(SAME) tests/cuda

slow: setup
	@$(BIN)/python -m pytest -m slow -rs $(ARGS)

slow-cuda: $(CUDA_VENV)/.installed
	@NUMBA_ENABLE_CUDASIM=1 $(CUDA_BIN)/python -m pytest -m slow $(or $(ARGS),tests/cuda)
	@$(CUDA_BIN)/python -m pytest -m slow tests/cuda

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
	@cd build/types && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/setup.cfg --cache-dir "$(FASTATTN_PROVEN)/mypy"

# The theme's own news have no place in a log.
docs docs-serve: export NO_MKDOCS_2_WARNING := 1
docs: setup
	@$(BIN)/mkdocs build --quiet --strict

docs-serve: setup
	@$(BIN)/mkdocs serve

ci:
	@$(QUEUE) test-distributed test-rest test-cuda-simulator $(PARTS:%=test-%) test-cuda-compilers check docs
	@$(BIN)/python -m tests.clone.run_lines

bench: setup
	@$(BIN)/python -m bench $(ARGS)

# The wheel comes out of the sdist, which so has all that building takes. An old egg-info would add files that are gone.
dist: setup
	@rm -rf dist build/lib *.egg-info
	@$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >/dev/null
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist dist/*.tar.gz
	@ls -l dist
	@$(BIN)/python tests/clone/run_installs.py dist/*

kernels: setup
	@$(BIN)/python tests/clone/run_kernels.py dist

clean:
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . \( -name $(VENV) -o -name $(RAY_VENV) -o -name $(CUDA_VENV) \) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
