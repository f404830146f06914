# Each target only calls documented commands; `make run` needs nothing but Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run install test lint bench load screenshots safety safety-seeded

run: $(STAMP)
	@exec $(BIN)/python -m healthboard.supervisor

install: $(STAMP)

$(STAMP): requirements.txt tests/requirements.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "healthboard needs Python 3.11 or later: name one by PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "$(PYTHON) cannot make $(VENV): on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "installing packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $(STAMP)

test: $(STAMP)
	@exec $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/djlint templates --lint --quiet

bench: $(STAMP)
	@exec $(BIN)/python -m tests.bench

# Goes on where the last call stopped, and ends within 50 minutes: `make safety ARGS="--row T1 --minutes 20 --jobs 4"`.
safety: $(STAMP)
	@exec $(BIN)/python -m tests.safety.run $(ARGS)

safety-seeded: $(STAMP)
	@SAFETY_SEEDED=$${SAFETY_SEEDED:-1} exec $(BIN)/python -m pytest -q tests/safety/test_seeded.py

# Node reports against a whole installation, in steps and then held; about 20 minutes.
load: $(STAMP)
	@exec $(BIN)/python -m tests.load $(ARGS)

# The pictures of docs/tour.md, from a real sandbox with faults in it; a few minutes.
screenshots: $(STAMP)
	@exec $(BIN)/python tests/browser/tour.py docs/images
