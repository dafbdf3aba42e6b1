# make demo | test | lint | bench | docs: each sets up what it needs first; a second call is quick.
VENV ?= .venv
BIN = $(VENV)/bin
PARTS = tracer model fasthvd replay validation
TYPED = $(foreach part,$(PARTS),-p vsketchdlc.$(part)) $(foreach file,cli answer errors units,-m vsketchdlc.$(file))

.PHONY: demo test test-core lint format bench docs setup native clean

setup:
	@setup/environment.sh live $(VENV)

demo: setup
	$(BIN)/vsketchdlc demo -o demo-out

test: setup test-core
	@setup/browser.sh
	$(BIN)/pytest

test-core:
	@setup/environment.sh core .venv-core
	.venv-core/bin/pytest -q -p no:cacheprovider -m "not live and not lab and not slow" tests/core tests/model tests/replay

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(VENV)/share/typing $(BIN)/mypy $(TYPED)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

docs: setup
	$(BIN)/mkdocs build --strict --quiet

native: setup

clean:
	rm -rf build dist *.egg-info .venv .venv-core demo-out
	rm -f tracer/libvsketch.so fasthvd/libfasthvd.so fasthvd/fasthvd-lane
