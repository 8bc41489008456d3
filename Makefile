# The commands of the project. `make demo` needs Python 3.11+ and nothing else; so does `make test`.

PYTHON   ?= python3
VENV     := .venv
BIN      := $(VENV)/bin
LOUD_PIP := pip --disable-pip-version-check
PIP      := $(LOUD_PIP) --quiet
WHEELS   := install --only-binary :all:

# Also what a package is built with is pinned: older pips take one variable for that, newer ones the other.
export PIP_CONSTRAINT       = constraints.txt constraints-build.txt
export PIP_BUILD_CONSTRAINT = constraints-build.txt
$(VENV)-bench/.made: export PIP_CONSTRAINT = constraints-bench.txt
$(VENV)-generators/.made: export PIP_CONSTRAINT = constraints-generators.txt
$(VENV)-integrations/.made: export PIP_CONSTRAINT = constraints-integrations.txt constraints-build.txt
$(VENV)-schedulers/.made: export PIP_CONSTRAINT = constraints-schedulers.txt
$(VENV)-session-tools/.made: export PIP_CONSTRAINT = constraints-session-tools.txt

# As pip does with what it does not install in place: or every start would do it, where Python may not.
COMPILE := $(BIN)/python -m compileall -q src

.PHONY: help more demo quick test extended long base baseline container pythons proxies browser sessions guides generators integrations examples check bench distributed faults fuzz model format client docs constraints clean

help:
	@echo "make demo         run the service with sample data; ARGS=\"--port 8001\" chooses another port"
	@echo "make quick        run the fast tests, while you work"
	@echo "make test         run the tests: all on SQLite, the contract of each resource on PostgreSQL, some journeys in Chromium"
	@echo "make check        lint, check types and import rules, look up known vulnerabilities"
	@echo "make format       format the code"
	@echo "make docs         write docs/reference.md and the table in docs/settings.md"
	@echo "make extended     run the tests that make test leaves out"
	@echo "make faults       inject the faults of docs/reliability.md; ARGS=failover injects a part"
	@echo "make distributed  run the tests with replicas of PostgreSQL, its versions, PgBouncer and Citus; it says what it needs"
	@echo "make bench        measure the service, its limits and its peers; ARGS=pages measures a part"
	@echo "make clean        remove what the other commands made"
	@echo "make more         list the other commands"

# CONTRIBUTING.md says how long each takes.
more:
	@echo "make base          install the wheel without extras into a new environment, and check it (a part of make extended)"
	@echo "make baseline      compare the speed of storing and of pages with an earlier version, roughly"
	@echo "make browser       use the reference page in Chromium; installs it with apt-get"
	@echo "make client        generate the synchronous client from the asynchronous one"
	@echo "make constraints   pin what a new install resolves to"
	@echo "make container     build the image and use it: with Docker or Podman, else with buildah and debootstrap, which it installs"
	@echo "make examples      run every example of the docs, and those in Airflow and Dagster, which it installs (330 MB)"
	@echo "make fuzz          search for inputs that break the service, with schemathesis, hypothesis and atheris"
	@echo "make generators    run generators of clients and linters on the OpenAPI document; needs npm (a part of make extended)"
	@echo "make guides        run every command of docs/operations; installs nginx, Caddy, Redis and Prometheus"
	@echo "make integrations  run the connectors in Airbyte and Singer, and DuckDB on an export (a part of make extended)"
	@echo "make long          run the tests with large data and heavy or hostile load"
	@echo "make model         compare random histories, reviews, views and runs with a model"
	@echo "make proxies       run tests through nginx and HAProxy; installs them with apt-get"
	@echo "make pythons       run the client's tests on every Python from 3.11 that is installed (1.4 GB each); ARGS=3.13 chooses one"
	@echo "make sessions      use a stored login in browsers and HTTP clients; installs them and Chromium (200 MB)"

demo: $(VENV)/.runtime
	@$(BIN)/gleanery demo $(ARGS)

# Tests wait more than they compute, so six processes finish sooner than two, on two cores too.
# Each of them would compile all tests for eight seconds, where Python may not keep what it compiled.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 6 --dist worksteal --durations=10

quick: $(VENV)/.dev
	$(PYTEST) -n 4 -m 'not thorough and not extended' $(ARGS)

test: $(VENV)/.dev chromium-if-possible
	$(PYTEST) -m 'not extended' $(ARGS)

# Without Chromium the tests of the console are skipped, and say so. A Debian package; other systems need the program.
# The headless shell is Chromium without windows: the tests take half the time. They draw text, so a font is needed.
HAS_CHROMIUM     := command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || command -v google-chrome >/dev/null
APT_INSTALL      := apt-get install -q -y --no-install-recommends
INSTALL_CHROMIUM := apt-get update -q && { $(APT_INSTALL) chromium-headless-shell fonts-dejavu-core || $(APT_INSTALL) chromium fonts-dejavu-core; }
.PHONY: chromium chromium-if-possible
chromium:
	@$(HAS_CHROMIUM) || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
		{ echo "Install Chromium first: sudo apt-get install chromium-headless-shell"; exit 1; }; $(INSTALL_CHROMIUM); }

chromium-if-possible:
	@$(HAS_CHROMIUM) || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && { $(INSTALL_CHROMIUM); }; } || \
		echo "Chromium is not installed, and cannot be installed here: the tests of the console are skipped"

# The type checker reads the packages of every integration.
check: $(VENV)/.extended
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python checks/sync_client.py --check
	$(BIN)/python checks/console_vendor.py
	$(BIN)/python checks/advisories.py

# With the connectors, and with the generators where npm is installed.
extended: $(VENV)/.extended $(VENV)-integrations/.made generators-if-possible chromium-if-possible
	$(PYTEST) -m extended $(ARGS)

# It uses what it finds: PostgreSQL 15 to 18 (Debian's packages, the wheel's, and the folders …/bin in GLEANERY_TEST_POSTGRES,
# separated by colons), PgBouncer 1.21 or newer, and Citus 13. A test that needs more is skipped, and says what.
# The tests of readiness stop the server itself.
POOLED_TESTS := tests/api tests/storage/test_group_model.py tests/storage/test_runs_model.py
CITUS_TESTS := tests/api tests/security/test_keys.py tests/cli/test_organizations.py

distributed: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile --durations=10 -rs tests/distributed $(ARGS)
	GLEANERY_TEST_POOLING=transaction $(PYTEST) -m 'not extended' -k postgres $(POOLED_TESTS) --ignore tests/api/test_readiness.py $(ARGS)
	GLEANERY_TEST_CITUS=2 $(PYTEST) -m 'not extended' -k postgres -rs $(CITUS_TESTS) $(ARGS)

long: $(VENV)/.dev
	$(BIN)/pytest -s --durations=10 tests/slow $(ARGS)

base: $(VENV)/.dev
	$(BIN)/pytest -s tests/project/test_base_install.py $(ARGS)

# Debian packages; a machine with Docker or Podman needs neither.
container:
	@if ! command -v docker >/dev/null && ! command -v podman >/dev/null; then \
		if ! command -v buildah >/dev/null || ! command -v debootstrap >/dev/null; then \
			test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
				{ echo "Install Docker or Podman first; or run as root: apt-get install buildah debootstrap"; exit 1; }; \
			apt-get update -q && $(APT_INSTALL) buildah debootstrap; fi; fi
	@$(PYTHON) checks/container.py

pythons:
	@$(PYTHON) checks/pythons.py $(ARGS)

# Debian packages; other systems need the programs nginx and haproxy.
proxies: $(VENV)/.dev
	@PATH="$$PATH:/usr/sbin"; if ! command -v nginx >/dev/null || ! command -v haproxy >/dev/null; then \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
			{ echo "Install nginx and HAProxy first: sudo apt-get install nginx-light haproxy"; exit 1; }; \
		apt-get update -q && $(APT_INSTALL) nginx-light haproxy; fi
	$(PYTEST) tests/slow/test_proxies.py tests/api/test_path_prefix.py $(ARGS)

browser: $(VENV)/.dev chromium
	$(BIN)/pytest -n 2 --durations=10 tests/slow/test_reference_in_browser.py $(ARGS)

# Debian packages; other systems need the programs.
SESSION_PROGRAMS := chromium chromedriver curl wget
SESSION_PACKAGES := chromium chromium-driver curl wget fonts-dejavu-core
sessions: $(VENV)/.dev $(VENV)-session-tools/.made .puppeteer/.made
	@for program in $(SESSION_PROGRAMS); do command -v $$program >/dev/null || missing=yes; done; \
	if test -n "$$missing"; then \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
			{ echo "Install the programs first: sudo apt-get install $(SESSION_PACKAGES)"; exit 1; }; \
		apt-get update -q && $(APT_INSTALL) $(SESSION_PACKAGES); fi
	$(BIN)/pytest -n 2 --durations=10 tests/slow/test_sessions_in_tools.py $(ARGS)

# In an environment of their own: nothing else in the project needs them.
$(VENV)-session-tools/.made: constraints-session-tools.txt
	$(PYTHON) -m venv $(VENV)-session-tools
	@echo "Installing Selenium and Scrapy into $(VENV)-session-tools …"
	@$(VENV)-session-tools/bin/$(PIP) $(WHEELS) selenium scrapy
	@touch $@

PUPPETEER := tests/slow/puppeteer
.puppeteer/.made: $(PUPPETEER)/package.json $(PUPPETEER)/package-lock.json $(PUPPETEER)/.npmrc
	@if ! command -v npm >/dev/null; then echo "Puppeteer is left out: npm is not installed"; else \
		echo "Installing Puppeteer into .puppeteer …"; \
		mkdir -p .puppeteer && cp $^ .puppeteer/ && cd .puppeteer && npm ci --no-progress && touch .made; fi

# Debian packages; other systems need the programs.
GUIDE_PROGRAMS := curl openssl nginx caddy redis-server redis-cli prometheus promtool systemd-analyze
GUIDE_PACKAGES := curl openssl nginx-light caddy redis-server prometheus systemd
guides: $(VENV)/.extended
	@PATH="$$PATH:/usr/sbin"; for program in $(GUIDE_PROGRAMS); do command -v $$program >/dev/null || missing=yes; done; \
	if test -n "$$missing"; then \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null || \
			{ echo "Install the programs first: sudo apt-get install $(GUIDE_PACKAGES)"; exit 1; }; \
		apt-get update -q && $(APT_INSTALL) $(GUIDE_PACKAGES); fi
	GLEANERY_ALL_GUIDES=1 $(PYTEST) tests/project/test_guides.py tests/project/test_alerts.py $(ARGS)

# Each tool is pinned: those from npm in tests/generators/package-lock.json.
generators: $(VENV)/.dev $(VENV)-generators/.made .generators/.made
	$(PYTEST) tests/generators tests/project/test_examples.py -k 'generators or generate' $(ARGS)

.PHONY: generators-if-possible
generators-if-possible:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(VENV)-generators/.made .generators/.made; else \
		echo "The generators of clients are left out: npm is not installed"; fi

$(VENV)-generators/.made: constraints-generators.txt
	$(PYTHON) -m venv $(VENV)-generators
	@echo "Installing the generators into $(VENV)-generators …"
	@$(VENV)-generators/bin/$(PIP) $(WHEELS) openapi-python-client
	@touch $@

.generators/.made: tests/generators/package.json tests/generators/package-lock.json tests/generators/.npmrc
	@command -v npm >/dev/null || { echo "Install Node.js 20 or newer with npm first"; exit 1; }
	@mkdir -p .generators && cp $^ .generators/
	@echo "Installing the npm tools into .generators …"
	@cd .generators && npm ci --no-progress
	@touch $@

integrations: $(VENV)/.extended $(VENV)-integrations/.made chromium-if-possible
	$(BIN)/pytest -n 2 --dist loadfile --durations=5 tests/integrations/test_connectors.py tests/integrations/test_shop_scenario.py tests/integrations/test_export_tools.py $(ARGS)

# Airbyte, Singer and the newest DuckDB for which the extension httpfs is a package, in an environment of their own: Airbyte
# needs other versions than we do.
$(VENV)-integrations/.made: constraints-integrations.txt integrations/singer/pyproject.toml
	$(PYTHON) -m venv $(VENV)-integrations
	@echo "Installing Airbyte's and Singer's tools into $(VENV)-integrations …"
	@$(VENV)-integrations/bin/$(PIP) $(WHEELS) airbyte-cdk singer-sdk duckdb duckdb-extension-httpfs
	@$(VENV)-integrations/bin/$(PIP) install --no-deps --editable integrations/singer
	@touch $@

# Every example that a test runs; tests/project/test_example_pages.py lists the others with their reason. The generators of clients
# need npm, and the guides of operators need nginx and others: make generators and make guides install these.
EXAMPLE_TESTS := tests/project/test_examples.py tests/project/test_example_pages.py tests/project/test_shop_tutorial.py \
	tests/project/test_guides.py tests/project/test_monitors_guide.py tests/project/test_webhook_receivers.py \
	tests/integrations/test_notebooks.py tests/integrations/test_schedulers.py tests/integrations/test_export_tools.py \
	tests/cli/data/test_pull.py tests/api/test_cross_origin.py tests/api/test_cross_origin_in_browser.py
examples: $(VENV)/.extended $(VENV)-integrations/.made $(VENV)-schedulers/.made
	$(BIN)/pytest -n 2 --dist worksteal --durations=10 -rs $(EXAMPLE_TESTS) $(ARGS)

# In an environment of their own: they restrict the versions of many packages.
$(VENV)-schedulers/.made: constraints-schedulers.txt
	$(PYTHON) -m venv $(VENV)-schedulers
	@echo "Installing Airflow and Dagster into $(VENV)-schedulers …"
	@$(VENV)-schedulers/bin/$(PIP) $(WHEELS) apache-airflow dagster
	@touch $@

faults: $(VENV)/.dev
	$(BIN)/python -m faults $(ARGS)

bench: $(VENV)/.extended $(VENV)-bench/.made $(VENV)-baseline/.made
	@$(COMPILE)
	$(BIN)/python -m bench $(ARGS)

# Three rows beside the baseline. It fails if one is 25 % slower: less is not visible on a machine that others use as well.
baseline: export GLEANERY_BENCH_OUTPUTS ?= 20000
baseline: export GLEANERY_BENCH_ROUNDS ?= 3
baseline: $(VENV)/.extended
	@$(COMPILE)
	@command -v wrk >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -q && $(APT_INSTALL) wrk; } || \
		echo "wrk is not installed, and cannot be installed here: pages are not measured"
	@$(MAKE) --no-print-directory $(VENV)-baseline/.made || echo "The baseline is left out, so nothing is compared"
	$(BIN)/python -m bench --short

# An earlier version of the service, in an environment of its own: what has become slower since then is visible.
$(VENV)-baseline/.made: export PIP_CONSTRAINT = $(VENV)-baseline/source/constraints.txt $(VENV)-baseline/source/constraints-build.txt
$(VENV)-baseline/.made: bench/BASELINE
	@git cat-file -e "$$(cat bench/BASELINE)^{commit}" || { echo "This clone has not the commit $$(cat bench/BASELINE): git fetch --unshallow"; exit 1; }
	rm -rf $(VENV)-baseline && $(PYTHON) -m venv $(VENV)-baseline
	@mkdir $(VENV)-baseline/source && git archive "$$(cat bench/BASELINE)" | tar -x -C $(VENV)-baseline/source
	@echo "Installing the baseline into $(VENV)-baseline …"
	@$(VENV)-baseline/bin/$(PIP) $(WHEELS) --editable $(VENV)-baseline/source
	@$(VENV)-baseline/bin/python -m compileall -q $(VENV)-baseline/source/src
	@touch $@

# The peers, in an environment of their own.
$(VENV)-bench/.made: constraints-bench.txt
	$(PYTHON) -m venv $(VENV)-bench
	@echo "Installing the peers into $(VENV)-bench …"
	@$(VENV)-bench/bin/$(PIP) $(WHEELS) \
		fastapi sqlalchemy uvicorn uvloop httptools datasette 'kinto[postgresql]' 'psycopg[binary]' waitress apify-client
	@touch $@

# GLEANERY_FUZZ_EXAMPLES is how many per operation and property, GLEANERY_FUZZ_SECONDS per target.
fuzz: export GLEANERY_FUZZ_EXAMPLES ?= 500
fuzz: $(VENV)/.fuzz
	$(BIN)/pytest -s tests/api/test_contract.py -k all_phases
	$(BIN)/pytest --hypothesis-profile=default tests/values/test_parsing.py tests/values/test_properties.py tests/client/sessions tests/project/test_fuzz.py
	$(BIN)/python -m fuzz $(ARGS)

# GLEANERY_MODEL_EXAMPLES is how many per engine; each has 40 steps, or 30 with runs.
model: export GLEANERY_MODEL_EXAMPLES ?= 150
model: $(VENV)/.dev
	$(BIN)/pytest -n 2 --durations=4 tests/storage/test_group_model.py tests/storage/test_runs_model.py $(ARGS)

# Built where there is no wheel of it; without it the targets run unguided, in tests/project/test_fuzz.py.
$(VENV)/.fuzz: $(VENV)/.dev
	@$(BIN)/$(PIP) install atheris==3.0.0 && touch $@ || echo "atheris can't be installed here: see docs/fuzzing.md"

format: $(VENV)/.dev
	$(BIN)/ruff check --fix --exit-zero --quiet .  # make check shows what only a person can fix
	$(BIN)/ruff format .

client: $(VENV)/.dev
	$(BIN)/python checks/sync_client.py

docs: $(VENV)/.dev
	$(BIN)/python checks/reference.py > docs/reference.md
	$(BIN)/python checks/settings_page.py docs/settings.md

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Gleanery needs Python 3.11 or newer; name one with make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.made pyproject.toml constraints.txt constraints-build.txt
	@echo "Installing Gleanery into $(VENV). This takes about a minute; pip shows each package:"
	@$(BIN)/$(LOUD_PIP) $(WHEELS) --editable '.[server]'
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing what the tests need into $(VENV) …"
	@$(BIN)/$(PIP) $(WHEELS) --editable '.[dev]'
	@touch $@

$(VENV)/.extended: $(VENV)/.dev
	@echo "Installing what only make check and make extended need into $(VENV) …"
	@$(BIN)/$(PIP) $(WHEELS) --editable '.[extended]'
	@touch $@

# Pins what a fresh install resolves to: names and versions only. Only Pythons before 3.11.3 want async-timeout.
constraints: export PIP_CONSTRAINT = constraints-build.txt
constraints:
	rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) $(WHEELS) --editable '.[extended]' async-timeout
	$(BIN)/pip freeze --all --exclude pip --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) $(VENV)-baseline $(VENV)-bench $(VENV)-generators $(VENV)-integrations $(VENV)-schedulers $(VENV)-session-tools $(VENV)-pythons .generators .puppeteer .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .import_linter_cache
