# Two commands do everything: `make demo` and `make test`. The rest is what they are made of.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find detectord -name '*.py' -o -name '*.json' -o -name '*.sql' -o -name '*.html' | sort)

.PHONY: demo test check bench lock clean mosquitto

$(VENV)/.locked: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "detectord needs Python 3.11 or later; set PYTHON=...")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "python venv is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	@touch $@

# The wheel is what runs and what is tested: never the source tree.
$(VENV)/.wheel: $(VENV)/.locked pyproject.toml README.md $(SOURCES)
	@rm -rf dist
	$(BIN)/pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-index --force-reinstall dist/*.whl
	@touch $@

demo: $(VENV)/.wheel
	$(BIN)/detectord dry-run

mosquitto:
	@command -v mosquitto >/dev/null || test -x /usr/sbin/mosquitto || { \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mosquitto; \
	  else echo "the tests run a real Mosquitto: sudo apt-get install mosquitto"; exit 1; fi; }
	@command -v cc >/dev/null || { \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev; \
	  else echo "the tests compile a fake NVML: sudo apt-get install gcc libc6-dev"; exit 1; fi; }

test: $(VENV)/.wheel mosquitto
	$(BIN)/pytest

check: $(VENV)/.wheel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.wheel mosquitto
	$(BIN)/python -m benchmarks

lock:
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --all-extras --group dev pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --extra agent pyproject.toml -o requirements/agent.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --extra scorer pyproject.toml -o requirements/scorer.txt

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache
