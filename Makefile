# make demo   the main job: a training that is killed, resumes, is stopped and finishes; with PyTorch:
#             make demo ARGS="--framework torch" (or keras, lightning, transformers, jax)
# make test   the tests, without those of make test-long
# make test-long  trials with many real processes, which make test leaves out
# make check  style, types, layers, documentation in step with the code
# make docs   the documentation as a site in build/site, links checked (Python 3.11 or newer)
# make bench  the measurements of docs/benchmarks.md
# make faults the injected faults of docs/faults.md
# make exactness  whether resumed trainings are the same trainings, docs/exact_resume.md
# make test-frameworks  the adapters of other frameworks, each with its newest and oldest versions
# make wheel  what a release is made of, in dist: wheel, sources, list of what is in them
# make fuzz   altered inputs for everything that reads what others wrote, docs/security.md
# make release-check  what CI leaves out, because it takes hours: before a release
# Each works as the first command in a fresh clone: it installs what it needs into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ARGS ?=
# With bytecode: else each process of a test compiles everything that it imports for itself, frameworks too.
unexport PYTHONDONTWRITEBYTECODE
TAB := tb_plugin/static/index.js
TAB_SOURCES := frontend/build.mjs frontend/package-lock.json $(shell find frontend/src -type f)

.PHONY: demo test test-long check docs bench faults exactness fuzz frontend test-versions test-frameworks wheel release-check check-release lock format clean install
.DEFAULT_GOAL := test

install: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.cfg build_frontend.py scripts/install $(wildcard locks/*.txt)
	PYTHON="$(PYTHON)" scripts/install $(VENV) dev
	@touch $@

$(TAB): $(TAB_SOURCES) | $(INSTALLED)
	scripts/build-frontend $(BIN)/python

# Of another framework: in an environment of its own, below build.
demo: $(if $(findstring --framework,$(ARGS)),,$(INSTALLED) $(TAB))
	@$(if $(findstring --framework,$(ARGS)),"$(PYTHON)" scripts/demo_framework.py,$(BIN)/python -m examples.demo) $(ARGS)

test: $(INSTALLED) $(TAB)
	@scripts/provision
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(if $(findstring tests/structure,$(ARGS)),,--ignore=tests/structure) $(ARGS)

test-long: $(INSTALLED) $(TAB)
	@scripts/provision
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --long -m long $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	scripts/biome $(BIN)/python ci --error-on-warnings
	$(BIN)/python -m pytest -q tests/structure
	@$(BIN)/python scripts/counts.py

docs: $(INSTALLED)
	PYTHON="$(PYTHON)" scripts/install $(VENV) dev docs
	$(BIN)/mkdocs build --strict --quiet
	@echo "docs: build/site/index.html"

frontend: $(TAB)

# The adapters' frameworks are gigabytes: only where they are asked for.
bench: $(INSTALLED) $(TAB)
	PYTHON="$(PYTHON)" scripts/install $(VENV) dev bench $(if $(findstring frameworks,$(ARGS)),faults)
	$(BIN)/python -m benchmarks $(ARGS)

# The peers' frameworks are gigabytes: only where they are asked for.
faults: $(INSTALLED)
	$(if $(findstring peers,$(ARGS))$(findstring culprit,$(ARGS)),PYTHON="$(PYTHON)" scripts/install $(VENV) dev faults)
	$(BIN)/python -m benchmarks.faults $(ARGS)

# Of all frameworks, which are gigabytes; one thread, so that sums are added up in one order.
exactness: $(INSTALLED)
	PYTHON="$(PYTHON)" scripts/install $(VENV) dev faults
	$(BIN)/python -m benchmarks.exactness $(ARGS)

fuzz: $(INSTALLED)
	PYTHON="$(PYTHON)" scripts/install $(VENV) dev fuzz
	$(BIN)/python -m fuzz $(ARGS)

# Each adapter with the newest and the oldest versions of its framework that pyproject.toml allows: gigabytes.
test-frameworks: $(INSTALLED)
	$(BIN)/python scripts/test_frameworks.py $(ARGS)

test-versions: $(INSTALLED) $(TAB)
	$(BIN)/python scripts/check_versions.py $(ARGS)

wheel: $(INSTALLED)
	scripts/check-wheel $(BIN)/python dist

lock: $(INSTALLED)
	$(BIN)/python scripts/lock.py $(ARGS)

# ARGS would reach each of them.
release-check:
	@scripts/provision
	CI=true $(MAKE) test-versions ARGS=
	CI=true $(MAKE) test-frameworks ARGS=
	CI=true $(MAKE) docs
	$(MAKE) faults ARGS=--short
	$(MAKE) fuzz ARGS=
	$(MAKE) exactness ARGS=

check-release:
	@scripts/check-release

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	scripts/biome $(BIN)/python check --write

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache demo-logs
