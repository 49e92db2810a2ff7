# Each target sets up all it needs: a virtual environment in .venv with pinned packages.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BENCH  := $(VENV)/.bench-ready
# Any Chromium does; where it can be had from the system, it is.
HAVE_CHROMIUM := { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
GET_CHROMIUM  := { test "$$(id -u)" = 0 && apt-get update && apt-get install -y chromium; } >/dev/null 2>&1
# Tests start hundreds of processes of ours, and none should compile anything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test check warm fmt bench soak lock audit clean

help:
	@echo "make demo   collect 500 templates from a practice web with faults, here and now"
	@echo "make test   check, then every test (no internet needed once the packages are there)"
	@echo "make check  format, lint and types"
	@echo "make fmt    format and mend what can be mended"
	@echo "make bench  measure against a bare loop and Scrapy; writes docs/performance.md"
	@echo "make soak   the slow proofs: kill matrix, zero 429, whole catalogue; writes docs/soak.md"
	@echo "make audit  known vulnerabilities and licences of the pinned packages and bundled servers"
	@echo "make lock   pin the newest packages in constraints.txt"

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps httpbin==0.10.4
	@$(HAVE_CHROMIUM) || $(GET_CHROMIUM) || echo "no Chromium here: tests of the browser are skipped"
	@touch $(READY)

$(BENCH): $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	@touch $(BENCH)

install: $(READY)

demo: $(READY)
	@$(BIN)/longline demo

# Not loadgroup: it groups nothing with pytest 9.2 (pytest-dev/pytest-xdist#1386).
test: $(READY)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check warm
	$(BIN)/python -m pytest -n 3 --dist worksteal

# Compile all tests beside the checks: else each process of pytest does it for itself.
warm: $(READY)
	@$(BIN)/python -m pytest --collect-only --quiet --quiet >/dev/null || true  # what is wrong the tests will tell

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
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev,audit]"
	$(BIN)/python tools/audit.py

lock:
	@rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install -qq --disable-pip-version-check ".[audit,dev,bench]"
	@.venv-lock/bin/python -m pip freeze --exclude longline --exclude httpbin | grep -v " @ " > constraints.txt
	@rm -rf .venv-lock && echo "constraints.txt is new; run make test"

clean:
	rm -rf $(VENV) .venv-lock .mypy_cache .ruff_cache .pytest_cache .longline build dist
