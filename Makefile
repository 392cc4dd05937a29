# Everything is `rlm` or a tool beneath; a target only calls it. Set PYTHON to choose the interpreter (3.11 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= configs/quick.yaml
ARM ?= seed-1
PROJECT ?= quick
# A file of exact versions with their digests: `make setup LOCK=ci.lock` installs those and no others.
LOCK ?=
# OpenBLAS threads and parallel tests fight over the cores. Tests with the real model, and those with clusters or inference
# servers of their own, run in one process and leave the cores to OpenBLAS; the others run in as many processes as there
# are cores, each with one thread.
PYTEST := $(BIN)/python -m pytest -q
PYTEST_PARALLEL := OPENBLAS_NUM_THREADS=1 $(PYTEST) --numprocesses auto --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup run doctor test test-flow test-docker test-runners test-served test-machines test-serving test-slow test-ways chaos test-all bench-verify bench-rollout bench-serve bench-train bench-iteration bench-problems bench-sampling bench-scale learn gate-sim screenshots mutants check lock clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.ready ## make the virtual environment and install the package with its development tools

$(VENV)/.ready: pyproject.toml $(LOCK)
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed; set PYTHON"'
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCK),$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

run: setup ## one iteration of self-play with CONFIG; run again for the next one
	$(BIN)/rlm run --config $(CONFIG)

doctor: setup ## what this machine has of what is needed
	$(BIN)/rlm doctor

test: setup ## the default tests and the flow tests
	$(PYTEST_PARALLEL) --dist worksteal
	$(PYTEST_PARALLEL) tests/flow

test-flow: setup ## whole iterations under Prefect with a tiny model
	$(PYTEST_PARALLEL) tests/flow

test-docker: setup ## sandboxes in containers, with a Docker engine that the tests start; RLM_TEST_CACHE keeps its image
	$(PYTEST) -rs tests/docker

test-runners: setup ## verification on a local Dask and a local Ray cluster; installs both
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dask,ray]'
	$(PYTEST) tests/runners

test-served: setup ## deployments, schedules and rlm up, with a server and a worker of the tests' own
	$(PYTEST_PARALLEL) tests/served

test-machines: setup ## docs/several-machines.md on four hosts in network namespaces, one of them cut off; wants root and ip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dask]'
	$(PYTEST) -rs tests/machines

test-serving: setup ## rlm serve with OpenAI's client, and rollouts through it
	$(PYTEST) tests/serving

test-slow: setup ## with the real default model, and against other implementations and trackers where they are installed
	$(PYTEST) -rs tests/slow

test-ways: setup ## three iterations of the default model by the command, by a worker and with a Dask cluster: the same ledger
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dask]'
	$(PYTEST) tests/ways

chaos: setup ## kill -9 at 50 moments of an iteration, in each stage with the real model, of worker and server; memory over 20 iterations. Half an hour
	$(PYTEST) -s tests/chaos
	RLM_CHAOS_SERVED=$${RLM_CHAOS_SERVED:-8} $(PYTEST) -s tests/served/test_kills.py

test-all: test test-docker test-runners test-served test-machines test-serving test-slow test-ways ## every tier

bench-verify: setup ## answers judged a second, against a fresh pytest process for each
	$(BIN)/python bench/verify.py

bench-rollout: setup ## tokens sampled a second, against mlx-lm's batched generation
	$(BIN)/python bench/rollout.py

bench-serve: setup ## how long clients of rlm serve wait, on a quiet machine and beside training
	$(BIN)/python bench/serve.py

bench-train: setup ## trained tokens a second and memory, against mlx-lm and mlx-lm-lora
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python bench/train.py

bench-iteration: setup ## a whole iteration, against the single-process loop that this project replaces. Half an hour
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python bench/iteration.py

bench-problems: setup ## seconds to make, prove and filter 500 problems without the model
	$(BIN)/python bench/problems.py

bench-sampling: setup ## share of groups that teach, with problems chosen by their pass rates and uniformly
	$(BIN)/python bench/sampling.py

bench-scale: setup ## how time, memory, disk and Prefect's database grow with problems and iterations
	PYTHONPATH=. $(BIN)/python bench/scale.py

gate-sim: setup ## how often the gate is wrong and how often it sees a gain, in simulated loops
	$(BIN)/python bench/gate_simulation.py

learn: setup ## six iterations with the default model, and what they taught; ARM=seed-1, seed-2 or control
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python bench/learn.py $(ARM)

screenshots: ## the pictures of the docs anew, from a server that is up and has an iteration of PROJECT; needs chromium
	$(BIN)/python docs/screenshots.py $(PROJECT)

mutants: setup ## which share of small changes to the code that decides its tests notice; below 85 % it fails. Hours
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mutants]'
	$(BIN)/python bench/mutants.py

check: setup ## style, and the types of everything, tests and benches included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lock: setup ## write ci.lock anew: the newest versions that pyproject.toml allows, for Python 3.11 and newer
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-annotate \
		--quiet --upgrade --custom-compile-command 'make lock' --output-file ci.lock

clean: ## remove the virtual environment and the tools' caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
