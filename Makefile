# One command per intent. `make test` and `make lint` need `pip install '.[dev]'`.
PYTHON ?= $(shell command -v python || echo python3)
BUILD ?= build/native
CMAKE ?= cmake
MUTATION ?=
MAKEFLAGS += --no-print-directory
JOBS ?= 2
SANITIZE ?= OFF
CUDA_ARCHITECTURES ?= 80
CUDA_TARGETS = $(subst $() ,;,$(addsuffix -real,$(CUDA_ARCHITECTURES)) 80-virtual)
SITE ?= build/site
DOCS_ENV ?= build/docs-env
DOCS_IMPORTS = furo, myst_parser, sphinx, mmaemu_jax
DIST ?= dist
PYTHONS ?= python3.11 python3.13
PROCESSORS ?= x86_64 aarch64
TOOLCHAIN ?=
FEWER_CASES ?= OFF
HANDLER_TESTS ?= ON
# `make fuzz`: how long each target runs, and the compiler, which must have libFuzzer.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= handler plan arithmetic
CLANGXX ?= $(shell command -v clang++ || ls /usr/bin/clang++-[0-9]* 2>/dev/null | sort -V | tail -n 1)
JAX = $(shell $(PYTHON) -c "import jax; print(jax.__version__)")
SOURCES = $(shell git ls-files 'csrc/*.h' 'csrc/*.cc' 'csrc/*.cu')

.PHONY: help lint format test native sanitize fuzz neon cuda cuda-all gpu exhaustive demo docs site validation perfcheck wheels mutation
help:
	@echo "lint        ruff, pyright, clang-format"
	@echo "format      rewrite the sources as lint wants them"
	@echo "test        the Python tests (installed package)"
	@echo "native      build the C++ library with warnings as errors, run its tests by ctest"
	@echo "sanitize    the C++ tests under the address and undefined-behaviour sanitizers, those with"
	@echo "            threads under the thread sanitizer"
	@echo "fuzz        libFuzzer on the handlers, the plans and the arithmetic, Python's plan code"
	@echo "            fuzzed, FUZZ_SECONDS each (docs/hardening.md); needs clang"
	@echo "neon        cross-build for aarch64, run the C++ tests under QEMU"
	@echo "cuda        compile the CUDA kernels for one architecture (cuda-all: for every one) and"
	@echo "            check their machine code; needs nvcc and cuobjdump, no GPU"
	@echo "gpu         everything that wants a GPU, in under 8 minutes (docs/cuda.md)"
	@echo "exhaustive  every input of every rounding, the large agreement matrix (hours)"
	@echo "perfcheck   instruction counts and kernel rates against tools/perf_baseline.json"
	@echo "demo        replay recorded projections bit for bit"
	@echo "wheels      sdist and wheels for x86-64 and AArch64 in $(DIST), checked (docs/releasing.md)"
	@echo "docs        build the documentation site: $(SITE)/index.html. Where $(PYTHON) lacks the"
	@echo "            docs extra, an environment of its own is made first (minutes, once)"
	@echo "mutation    mutants without a result and survivors, then docs/validation/mutation.md; options"
	@echo "            of tools/mutation in MUTATION='--language python --minutes 30 FILE ...'"
	@echo "validation  replay the recordings, write docs/validation.md from what was counted (minutes;"
	@echo "            with ALL_CASES=1 the large sets by the reference, too)"

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pyright --pythonpath "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	clang-format --dry-run --Werror $(SOURCES)

format:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
	clang-format -i $(SOURCES)

test:
	$(PYTHON) -m pytest -n auto

native:
	$(CMAKE) -S . -B $(BUILD) -DMMAEMU_JAX_PYTHON=OFF -DMMAEMU_JAX_TESTS=ON -DMMAEMU_JAX_WERROR=ON \
	  -DMMAEMU_JAX_SANITIZE=$(SANITIZE) -DMMAEMU_JAX_FEWER_CASES=$(FEWER_CASES) \
	  -DMMAEMU_JAX_HANDLER_TESTS=$(HANDLER_TESTS) \
	  $(if $(TOOLCHAIN),-DCMAKE_TOOLCHAIN_FILE=$(TOOLCHAIN))
	$(CMAKE) --build $(BUILD) -j $(JOBS)
	cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

# The handlers' tests compile slowly here and are left out; `make sanitize ALL_CASES=1` has them, and
# `make fuzz` runs the handlers under the same sanitizers.
sanitize:
	$(MAKE) native BUILD=$(BUILD)-sanitize CMAKE="$(CMAKE)" SANITIZE=ON \
	  HANDLER_TESTS=$(if $(ALL_CASES),ON,OFF)
	$(MAKE) native BUILD=$(BUILD)-thread CMAKE="$(CMAKE)" SANITIZE=thread HANDLER_TESTS=OFF

# Inputs that reach new code are kept beside the build; a finding is there as crash-...
fuzz:
	@test -n "$(CLANGXX)" || { echo "make fuzz needs clang with libFuzzer (apt-get install clang" \
	  "libclang-rt-dev), or CLANGXX=...; ctest replays the corpus without it" >&2; exit 1; }
	$(CMAKE) -S . -B $(BUILD)-fuzz -DMMAEMU_JAX_PYTHON=OFF -DMMAEMU_JAX_FUZZ=ON \
	  -DMMAEMU_JAX_SANITIZE=ON -DCMAKE_CXX_COMPILER=$(CLANGXX)
	$(CMAKE) --build $(BUILD)-fuzz -j $(JOBS)
	for target in $(FUZZ_TARGETS); do \
	  mkdir -p $(BUILD)-fuzz/corpus/$$target && $(BUILD)-fuzz/csrc/fuzz/fuzz_$$target \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=400 -print_final_stats=1 \
	    -artifact_prefix=$(BUILD)-fuzz/ $(BUILD)-fuzz/corpus/$$target csrc/fuzz/corpus/$$target \
	    || exit 1; \
	done
	$(PYTHON) tools/fuzz_plans.py --seconds $(FUZZ_SECONDS)

# QEMU is slow, so fewer cases of every kind; `make neon ALL_CASES=1` runs what `make native` does.
neon:
	$(MAKE) native BUILD=$(BUILD)-neon CMAKE="$(CMAKE)" TOOLCHAIN=csrc/aarch64-linux-gnu.cmake \
	  FEWER_CASES=$(if $(ALL_CASES),OFF,ON)

cuda:
	$(CMAKE) -S . -B $(BUILD)-cuda -DMMAEMU_JAX_PYTHON=OFF -DMMAEMU_JAX_CUDA=ON \
	  -DMMAEMU_JAX_WERROR=ON "-DMMAEMU_JAX_CUDA_ARCHITECTURES=$(CUDA_TARGETS)"
	$(CMAKE) --build $(BUILD)-cuda -j $(JOBS) --target mmaemu_cuda
	$(PYTHON) tools/check_sass.py $(BUILD)-cuda --architectures $(CUDA_ARCHITECTURES)

cuda-all:
	$(MAKE) cuda CUDA_ARCHITECTURES="80 86 89 90 100 120" BUILD=$(BUILD)-all

gpu:
	$(PYTHON) tools/gpu_check.py $(GPU_OPTIONS)

perfcheck:
	$(CMAKE) -S . -B $(BUILD) -DMMAEMU_JAX_PYTHON=OFF -DMMAEMU_JAX_TESTS=ON
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target perf_kernels
	$(PYTHON) tools/perfcheck.py $(BUILD)/csrc/tests/perf_kernels

exhaustive:
	$(PYTHON) -m pytest -n auto -m exhaustive

demo:
	$(PYTHON) -m mmaemu_jax demo

# With $(PYTHON) if it has the docs extra and the package, else with an environment made for it.
docs:
	@if $(PYTHON) -c "import $(DOCS_IMPORTS)" 2>/dev/null; then \
	  $(MAKE) site; \
	else \
	  echo "$(PYTHON) lacks the docs extra; the site is built with $(DOCS_ENV)"; \
	  $(MAKE) $(DOCS_ENV)/ready && $(MAKE) site PYTHON=$(DOCS_ENV)/bin/python; \
	fi

$(DOCS_ENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(DOCS_ENV)
	$(DOCS_ENV)/bin/python -m pip install -q '.[docs]'
	touch $@

site:
	$(PYTHON) -m sphinx -q -W --keep-going -b html docs $(SITE)
	$(PYTHON) tools/check_site.py $(SITE)
	@echo "the site: $(SITE)/index.html"

validation:
	$(PYTHON) -m pytest -n auto tests/test_recordings.py -k "auto or as_recorded" \
	  --census=docs/validation/kernels-jax-$(JAX).json
	$(PYTHON) -m pytest -n auto tests/test_recordings.py -k reference \
	  $(if $(ALL_CASES),-m "exhaustive or not exhaustive") \
	  --census=docs/validation/reference-jax-$(JAX).json
	$(PYTHON) -m pytest -n auto tests/test_agreement.py \
	  --census=docs/validation/agreement-jax-$(JAX).json
	$(PYTHON) tools/write_validation.py

wheels:
	$(PYTHON) tools/build_wheels.py --out $(DIST) --processors $(PROCESSORS) --pythons $(PYTHONS)

mutation:
	$(PYTHON) -m tools.mutation $(MUTATION)
