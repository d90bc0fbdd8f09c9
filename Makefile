# Everything a contributor does. Needs make, git and Python 3.11 or newer; all else is put into $(VENV): for `make run` what the program
# needs (requirements.lock), otherwise also the tools of development (requirements-dev.lock, which holds the same versions and more).
# What builds packages comes first (requirements-build.lock), so that no build fetches anything else.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready
HABITS := $(addprefix tests/habits/test_,architecture.py names.py projections.py)

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1
unexport TASK

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check bench lock clean venv dist-test

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUNS) ## talk to an agent in a scratch project, offline (TASK="read notes.txt" for one task)
	@$(BIN)/python examples/first_minute.py $(if $(strip $(value TASK)),'$(subst ','\'',$(value TASK))')

test: venv ## run every test (ARGS="tests/habits -k doors" for some)
	$(BIN)/python -m tests.support.second_look $(ARGS)

check: venv ## format, lint, types, floors and names: what CI runs before the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --project pyproject.toml --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest --quiet -n 0 $(HABITS)

dist-test: venv ## install the wheel with the lowest and highest dependencies, for each Python here, and use it (ARGS=--short as in CI)
	scripts/dist-test $(ARGS)

bench: venv ## measure the promises
	$(BIN)/python -m bench

lock: venv ## resolve the dependencies anew into the three locks (UPGRADE=1 for newer versions)
	$(COMPILE) $(if $(UPGRADE),--upgrade) --all-extras --group dev --output-file requirements-dev.lock pyproject.toml
	$(COMPILE) --upgrade --all-extras --group build --constraints requirements-dev.lock --output-file requirements.lock pyproject.toml
	$(COMPILE) --upgrade --group build --constraints requirements-dev.lock --output-file requirements-build.lock

clean: ## remove the environment and everything that tools left behind
	rm -rf $(VENV) .scratch build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

venv: $(READY)

$(RUNS): requirements.lock requirements-build.lock pyproject.toml
	@echo "installing what Curtainwall needs into $(VENV), once; this takes a minute or a few" >&2
	$(call install,requirements.lock)
	@touch $@

$(READY): requirements-dev.lock requirements.lock requirements-build.lock pyproject.toml
	@echo "installing what Curtainwall and its tests need into $(VENV), once; this takes a few minutes" >&2
	$(call install,requirements-dev.lock)
	@touch $(RUNS) $@

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Curtainwall needs Python 3.11 or newer; \`$(PYTHON)\` is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "This Python cannot make environments. On Debian: sudo apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -W ignore -m pip install --quiet --no-deps --require-hashes -r requirements-build.lock
	@$(BIN)/python -W ignore -m pip install --quiet --no-deps --require-hashes --no-build-isolation -r $(1)
	@$(BIN)/python -W ignore -m pip install --quiet --no-deps --no-build-isolation -e .
endef
