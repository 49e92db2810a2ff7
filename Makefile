# Each target sets up all it needs: a virtual environment in .venv with pinned packages.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEMO   := $(VENV)/.demo-ready
BENCH  := $(VENV)/.bench-ready
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# Any Chromium will do; it is installed from the system's packages where possible.
HAVE_CHROMIUM := { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
GET_CHROMIUM  := { test "$$(id -u)" = 0 && apt-get update && apt-get install -y chromium; } >/dev/null 2>&1
# Tests start hundreds of Python processes, which should not compile modules again.
unexport PYTHONDONTWRITEBYTECODE

# Tests that start no servers, browsers or processes and do not wait in real time.
QUICK := tests/core tests/config tests/limits tests/pipeline tests/drift tests/sources tests/test_imports.py

.PHONY: help install demo test quick check warm fmt bench soak lock audit clean

help:
	@echo "make demo   scrape 500 templates from a local practice web with faults"
	@echo "make test   check, then run all tests (needs no internet once packages are installed)"
	@echo "make quick  run the fast tests (under a minute)"
	@echo "make check  check format, lint and types"
	@echo "make fmt    format, and fix what ruff can fix"
	@echo "make bench  compare with a bare loop and Scrapy; writes docs/performance.md"
	@echo "make soak   run the slow proofs: kills, zero 429, whole catalogue; writes docs/soak.md"
	@echo "make audit  check pinned packages and bundled servers for vulnerabilities and licences"
	@echo "make lock   pin the newest packages in constraints.txt"

# The demo needs only the packages that `pip install longline` needs.
$(DEMO): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $(DEMO)

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e ".[dev]"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps httpbin==0.10.4
	@$(HAVE_CHROMIUM) || $(GET_CHROMIUM) || echo "Chromium is not installed: browser tests are skipped"
	@touch $(READY) $(DEMO)

$(BENCH): $(READY)
	@$(PIP) -e ".[dev,bench]"
	@touch $(BENCH)

install: $(READY)

demo: $(DEMO)
	@$(BIN)/longline demo

# Not loadgroup: it groups nothing with pytest 9.2 (pytest-dev/pytest-xdist#1386).
test: $(READY)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check warm
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 25 --durations-min 8

quick: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not real_time" $(QUICK)

# Compile all tests during the checks; otherwise each process of pytest does it.
warm: $(READY)
	@$(BIN)/python -m pytest --collect-only --quiet --quiet >/dev/null || true  # the tests report what is wrong

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fmt: $(READY)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(BENCH)
	$(BIN)/python bench/throughput.py

soak: $(BENCH)
	$(BIN)/python bench/soak.py

audit: $(READY)
	@$(PIP) -e ".[dev,audit]"
	$(BIN)/python tools/audit.py

lock:
	@rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install -qq --disable-pip-version-check ".[audit,dev,bench]"
	@.venv-lock/bin/python -m pip freeze --exclude longline --exclude httpbin | grep -v " @ " > constraints.txt
	@rm -rf .venv-lock && echo "constraints.txt is new; run make test"

clean:
	rm -rf $(VENV) .venv-lock .mypy_cache .ruff_cache .pytest_cache .longline build dist
