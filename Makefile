# The commands of the project. `make demo` needs Python 3.11+ and nothing else; so does `make test`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: help demo test check bench faults long fuzz format reference constraints clean

help:
	@echo "make demo       run the service over a sample organization"
	@echo "make test       run all tests, on SQLite and on PostgreSQL"
	@echo "make check      lint, types and the layering rule"
	@echo "make format     format the code"
	@echo "make fuzz       look for what breaks it, with schemathesis, hypothesis and atheris"
	@echo "make bench      measure the service beside the limits and the peers; ARGS=pages measures a part"
	@echo "make faults     do the damage that docs/reliability.md tells of; ARGS=failover does a part"
	@echo "make long       run the tests that take their time"
	@echo "make reference  write docs/reference.md anew"
	@echo "make clean      remove what the other targets made"

demo: $(VENV)/.runtime
	@$(BIN)/gleanery demo

test: $(VENV)/.dev
	$(BIN)/pytest -n auto --maxprocesses 4 $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

long: $(VENV)/.dev
	$(BIN)/pytest -s tests/long_*.py $(ARGS)

faults: $(VENV)/.dev
	$(BIN)/python -m faults $(ARGS)

bench: $(VENV)/.dev $(VENV)-bench/.made
	$(BIN)/python -m bench $(ARGS)

# The peers, in an environment of their own.
$(VENV)-bench/.made:
	$(PYTHON) -m venv $(VENV)-bench
	@echo "Installing the peers into $(VENV)-bench …"
	@$(VENV)-bench/bin/pip --disable-pip-version-check --quiet install \
		fastapi sqlalchemy uvicorn uvloop httptools datasette 'kinto[postgresql]' 'psycopg[binary]' waitress
	@touch $@

# GLEANERY_FUZZ_EXAMPLES is how many per operation and property, GLEANERY_FUZZ_SECONDS per target.
fuzz: export GLEANERY_FUZZ_EXAMPLES ?= 500
fuzz: $(VENV)/.fuzz
	$(BIN)/pytest -s tests/test_contract.py -k schemathesis
	$(BIN)/pytest --hypothesis-profile=default tests/test_parsing.py tests/test_properties.py tests/test_fuzz.py
	$(BIN)/python -m fuzz $(ARGS)

# Built where there is no wheel of it; without it the targets run unguided, in tests/test_fuzz.py.
$(VENV)/.fuzz: $(VENV)/.dev
	@$(PIP) install atheris==3.0.0 && touch $@ || echo "atheris can't be installed here: see docs/fuzzing.md"

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(VENV)/.dev
	$(BIN)/python -m gleanery.api.reference > docs/reference.md

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Gleanery needs Python 3.11 or newer; name one with make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing Gleanery into $(VENV) …"
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing what the tests need into $(VENV) …"
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Pins what a fresh install resolves to: names and versions only.
constraints:
	rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	$(PIP) install --editable '.[dev]'
	$(BIN)/pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) $(VENV)-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .import_linter_cache
