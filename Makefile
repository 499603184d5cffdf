# What a developer does here. `make` alone lists it.

PYTHON ?= python3
# What users get is installed in .venv, compiled where a C compiler is at hand. What developers need
# is in .venv-dev, where the sources run as they are.
INSTALLED := .venv
RUNNING := $(INSTALLED)/.server
PAGE := $(INSTALLED)/.page
VENV := .venv-dev
BIN := $(VENV)/bin
EDITABLE := $(VENV)/.server
LINTING := $(VENV)/.lint
QUICK := $(VENV)/.quick
STAMP := $(VENV)/.installed
DOCUMENTING := $(VENV)/.docs
SOURCES := pyproject.toml constraints.txt hatch_build.py $(shell find src -type f -not -name '*.pyc')
ARGS ?=
# Python keeps what it compiles, the tests with rewritten assertions, too: every process of pytest
# would spend twelve seconds on it, and every start of a server two thirds of its time.
unexport PYTHONDONTWRITEBYTECODE
# Three processes run the tests, even on two cores, because many tests wait for other programs. Those
# of Spark share one process, and so one Java. They take longest, so they begin at once, and their
# process has priority (tests/conftest.py).
WORKERS ?= 3
REWRITTEN := build/.rewritten
# Unit tests first: they are fast and name the place.
TESTS := tests/unit $(filter-out tests/unit/ tests/__pycache__/,$(wildcard tests/*/))

.DEFAULT_GOAL := help
.PHONY: help setup run demo test announced test-quick test-pythons rewritten compile test-compiled wheel histories check fmt docs dist compose-up bench clean redis onlookers

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make run ARGS='--port 6380' passes arguments on; so do demo, test, histories and bench."

setup: $(STAMP) ## a virtual environment in .venv-dev with everything that tests and checks need

# A virtual environment at $(1) with the pip that constraints.txt names.
define environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
       "name another with: make run PYTHON=python3.12" >&2; exit 1; }
@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
$(1)/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
endef

# What pip installs, with the versions of constraints.txt, for the build as well.
INSTALL := -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt

# Quick when nothing changed: each stamp is newer than what it was made from. A build that finds
# what it compiles in its cache takes seconds (hatch_build.py).
$(RUNNING): $(SOURCES)
	$(call environment,$(INSTALLED))
	@echo "installing the server in $(INSTALLED); the first time some 55 MB and a minute or two"
	$(INSTALLED)/bin/python $(INSTALL) .
	@touch $@

$(PAGE): $(RUNNING)
	$(INSTALLED)/bin/python $(INSTALL) '.[web]'
	@touch $@

$(EDITABLE): pyproject.toml constraints.txt
	$(call environment,$(VENV))
	$(BIN)/python $(INSTALL) --editable .
	@touch $@

# The programs that check and compile.
$(LINTING): $(EDITABLE)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group lint
	@touch $@

$(STAMP): $(LINTING)
	@echo "installing what tests and benchmarks need, some 1.4 GB with Spark and Java"
	$(BIN)/python -m pip install --constraint constraints.txt \
	  --group test --group compat --group bench
	@touch $@

$(QUICK): $(EDITABLE)
	@echo "installing what the quick tests need in $(VENV), some 60 MB"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group quick
	@touch $@

$(DOCUMENTING): $(EDITABLE)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	@touch $@

run: $(RUNNING) ## a server on 127.0.0.1:6379, data in data/
	@mkdir -p data
	$(INSTALLED)/bin/anabranch serve --dir data $(ARGS)

demo: $(PAGE) ## see three regions diverge and converge, with live traffic
	$(INSTALLED)/bin/anabranch demo $(ARGS)

test: announced setup redis onlookers $(REWRITTEN) compile ## all tests, fast ones first
	@$(BIN)/python -m compileall -q src tests benchmarks
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --no-loadscope-reorder $(TESTS) $(ARGS)

announced:
	@test -f $(STAMP) || { \
	  echo "make test first installs 2 GB in $(CURDIR)/$(VENV): Spark, Java, client libraries."; \
	  if $(IS_DEBIAN_ROOT); then echo "As root on Debian it installs these packages where they" \
	    "are missing: redis-server redis-tools $(WANTED)."; fi; \
	  echo "Installing and testing take 20 to 40 minutes; 'make test-quick' takes two to four."; }

# No Spark, no browser, no packages of the system.
QUICK_TESTS := $(filter-out tests/unit/spark/ tests/unit/benchmarks/ tests/unit/__pycache__/, \
  $(wildcard tests/unit/*/)) tests/kit tests/recorded tests/system/test_serve.py
test-quick: $(QUICK) ## the tests of the server and the kit: minutes, nothing outside .venv-dev
	$(BIN)/python -m pytest --numprocesses auto -m 'not slow and not long' $(QUICK_TESTS) $(ARGS)

test-pythons: ## the core of the tests on the other Pythons of this machine, if there are any
	$(PYTHON) -m tests.house.other_pythons --numprocesses auto $(ARGS)

# The first time one process compiles everything, because all of them begin at the same time.
$(REWRITTEN): $(STAMP)
	@mkdir -p $(@D)
	$(BIN)/python -m pytest --collect-only -qq $(TESTS) >$@.log || { cat $@.log; exit 1; }
	@touch $@

rewritten: $(REWRITTEN)

# The core in machine code, in build/: the one that `make run` installs, from the same cache.
COMPILED := $(CURDIR)/build/compiled
$(COMPILED)/.built: $(LINTING) $(SOURCES)
	@rm -rf $(COMPILED)
	@$(BIN)/python -c 'import hatch_build, sys; sys.exit(not hatch_build.has_compiler())' || { \
	  echo "NO C COMPILER, OR NO Python.h: THE COMPILED CORE IS NOT TESTED" >&2; exit 0; } && { \
	  ANABRANCH_COMPILE=1 MYPY_CACHE_DIR=build/mypy \
	    $(BIN)/python -m hatchling build --target wheel --directory $(COMPILED) && \
	  $(BIN)/python -m zipfile --extract $(COMPILED)/*.whl $(COMPILED)/core && touch $@; }

compile: $(COMPILED)/.built ## the compiled core that is tested; needs a C compiler

# The tests of the core on compiled modules. Whatever is a test of the process runs on the
# interpreted ones alone.
CORE_TESTS := $(addprefix tests/unit/,resp stream effects region replication oplog) \
  $(addprefix tests/unit/commands/test_,bulk.py bulk_rows.py garbage.py) \
  $(addprefix tests/differential/test_,differential.py small_values.py scripts.py) \
  tests/unit/test_zstd.py tests/fuzzing 'tests/active_active/test_histories.py::test_histories[101]'
test-compiled: setup redis compile ## the tests of the core on compiled modules
	@test ! -f $(COMPILED)/.built || { export PYTHONPATH=$(COMPILED)/core && \
	  $(BIN)/anabranch version && \
	  $(BIN)/python -m pytest --numprocesses $(WORKERS) $(CORE_TESTS) $(ARGS); }

check: setup ## linter, format, types, import rules, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell *.md mkdocs.yml .github docs docker benchmarks examples src tests

fmt: setup ## format the code, mend what the linter can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: $(DOCUMENTING) ## the documentation site, in site/
	$(BIN)/python -m tests.house.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Containers of three regions: PROFILES='observability spark' adds Prometheus, Grafana and an archive.
PROFILES ?=
compose-up: ## three regions in containers, with traffic; PROFILES='observability spark'
	docker compose -f docker/compose.yaml $(addprefix --profile ,$(PROFILES)) up --build $(ARGS)

# In processes that do nothing else; `make test` has a share of them, the first six hundred.
histories: setup ## random histories of several regions, as long as takes a minute
	$(BIN)/python -m tests.active_active.histories --seeds 1001-2000 --jobs $(WORKERS) $(ARGS)

# What makes the wheel is in .venv-dev; `pip install .` makes the same in an environment of its own.
wheel: $(LINTING) ## a wheel for this machine with compiled modules, in dist/; needs a C compiler
	ANABRANCH_COMPILE=1 $(BIN)/python -m hatchling build --target wheel

# The SBOM lists what the wheel installs, from an environment that has nothing else.
dist: ## wheel, sdist and SBOM, in dist/
	rm -rf dist build/sbom && $(PYTHON) -m venv build/sbom build/dist
	build/dist/bin/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	build/dist/bin/python -m pip install --quiet --constraint constraints.txt --group release
	ANABRANCH_COMPILE=0 build/dist/bin/python -m build --quiet --outdir dist
	build/sbom/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	build/sbom/bin/python -m pip uninstall --quiet --yes setuptools pip
	build/dist/bin/cyclonedx-py environment build/sbom/bin/python --pyproject pyproject.toml \
	  --output-reproducible --output-format JSON --output-file dist/anabranch.cdx.json

# The compiled core is measured: what `make run` starts. Without a C compiler it is the other form.
MEASURED := PYTHONPATH=$(COMPILED)/core $(BIN)/python
bench: setup redis compile ## compare with redis-server; scaling, regions, Spark, page and test kit with their goals
	$(MEASURED) -m benchmarks.versus_redis $(ARGS)
	$(MEASURED) -m benchmarks.scaling $(ARGS)
	$(MEASURED) -m benchmarks.regions $(ARGS)
	$(MEASURED) -m benchmarks.spark $(ARGS)
	$(MEASURED) -m benchmarks.page
	$(MEASURED) -m benchmarks.kit

clean: ## remove what was built or cached; .venv and .venv-dev stay
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests compare with a real redis-server; without one they say so and skip that part.
IS_DEBIAN_ROOT := test "$$(id -u)" = 0 && grep -qsE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release
redis:
	@command -v redis-server >/dev/null || { \
	  $(IS_DEBIAN_ROOT) && $(PYTHON) -m tests.house.debian redis-server redis-tools; \
	  command -v redis-server >/dev/null || \
	    echo "redis-server is not installed: what compares with it is skipped" >&2; }

# A browser for the page, Prometheus (unpacked, without its service) for the dashboard, clients for Go,
# PHP and Ruby, and what builds the container image. Where they cannot be had the tests that use them
# say so and are skipped. Nothing that is installed is upgraded.
ONLOOKERS := $(CURDIR)/$(VENV)/prometheus
WANTED := chromium golang-go golang-github-gomodule-redigo-dev golang-gopkg-redis.v5-dev php-cli \
  php-redis ruby ruby-redis buildah mmdebstrap
onlookers:
	@if $(IS_DEBIAN_ROOT); then \
	  $(PYTHON) -m tests.house.debian $(WANTED); \
	  command -v prometheus >/dev/null || test -d $(ONLOOKERS) || { \
	    directory=$$(mktemp -d) && chmod 755 "$$directory" && cd "$$directory" && \
	    apt-get download -qq prometheus && \
	    dpkg-deb -x prometheus_*.deb $(ONLOOKERS); rm -rf "$$directory"; }; \
	else \
	  echo "not root on Debian: the tests that use a browser, Prometheus, Go, PHP, Ruby or buildah" \
	    "are skipped where these are missing" >&2; \
	fi
