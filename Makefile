# Each target only calls documented commands; `make run` needs nothing but Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Compiled modules are kept wherever this runs: some images switch that off, and then each of many processes compiles anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run install test lint bench load screenshots safety safety-seeded lock audit sbom licences

run: $(STAMP)
	@exec $(BIN)/python -m healthboard.supervisor

install: $(STAMP)

$(STAMP): tests/requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "healthboard needs Python 3.11 or later: name one by PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "$(PYTHON) cannot make $(VENV): on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "installing packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/requirements.lock
	@touch $(STAMP)

test: $(STAMP)
	@exec $(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/djlint templates --lint --quiet

bench: $(STAMP)
	@exec $(BIN)/python -m tests.bench

# Stops by itself after 50 minutes, and goes on from there when it is called again: `make safety ARGS="--row T1 --minutes 20 --jobs 4"`.
safety: $(STAMP)
	@exec $(BIN)/python -m tests.safety.run $(ARGS)

safety-seeded: $(STAMP)
	@SAFETY_SEEDED=$${SAFETY_SEEDED:-1} exec $(BIN)/python -m pytest -q tests/safety/test_seeded.py

# Node reports against a whole installation, held and then in steps; about half an hour.
load: $(STAMP)
	@exec $(BIN)/python -m tests.load $(ARGS)

# The pictures of docs/tour.md, from a real sandbox with faults in it; a few minutes.
screenshots: $(STAMP)
	@exec $(BIN)/python tests/browser/tour.py docs/images

# What is chosen (requirements.txt, tests/requirements.txt) with all that it needs, for every Python and platform, by hash.
# A release must be out for WAIT before it comes in; what is locked stays until UPGRADE=-U.
WAIT ?= 7 days
UPGRADE ?=
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	--exclude-newer "$(WAIT)" $(UPGRADE)

lock:
	@test -x $(BIN)/uv || { echo "make install first" >&2; exit 1; }
	$(LOCK) requirements.txt -o healthboard/requirements.lock
	$(LOCK) -c healthboard/requirements.lock tests/requirements.txt -o tests/requirements.lock

# Known vulnerabilities of what is locked: needs the internet, and says so where there is none.
audit: $(STAMP)
	@exec $(BIN)/python -m tests.supply.audit $(ARGS)

# A CycloneDX document: `make sbom > sbom.json`
sbom: $(STAMP)
	@exec $(BIN)/python -m tests.supply.sbom $(ARGS)

licences: $(STAMP)
	@exec $(BIN)/python -m tests.supply.licences
