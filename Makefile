# make demo    all of it, from nothing to a table and a chart under demo/out/
# make test    whether Headrace works here: builds it, runs its tests
# make check   the rest of what CI runs: lints, sanitizers, fuzzers, tests with foreign packages;
#              STAGES="mypy clang-tidy" runs only these; tools/stages/table.py has their names
# make lint    the part of make check that only reads the sources
# make wheel   binary wheels in dist/, tested where there is no compiler; STAGES="build repair" has only these
# make coverage    which lines of src/ the C++ tests execute, a row a folder
# make bench   Headrace beside other loaders: docs/benchmarks.md; CELL="raw4k-warm" has only these
# make soak    the long versions of some tests: hours; STAGES="ends kills" has only these
#
# They install what is missing (saying what, first), build, and are quick the second time. The demo
# installs what building and running need; test adds GoogleTest and pytest; check, lint, soak and
# coverage add clang, valgrind and linters.
# make setup, setup-tests, setup-checks, build, format, clean: their parts. `make build` leaves
# .venv/bin/headrace.

VENV ?= .venv
export VENV

.PHONY: demo test check lint wheel bench soak coverage build setup setup-tests setup-checks format stub clean

demo: build
	@$(VENV)/bin/python demo/demo.py

test: setup-tests
	@$(VENV)/bin/python tools/stages test $(STAGES)

check: setup-checks
	@$(VENV)/bin/python tools/stages check $(STAGES)

lint: setup-checks
	@$(VENV)/bin/python tools/stages lint

wheel: setup
	@$(VENV)/bin/python tools/build_wheels.py $(STAGES)

soak: setup-checks build
	@tools/soak.sh $(STAGES)

bench: build
	@$(VENV)/bin/python benchmarks/peers/bench.py $(if $(CELL),--cell $(CELL))
	$(if $(CELL),,@$(VENV)/bin/python benchmarks/map_style/map_style.py)
	$(if $(CELL),,@PYTHONPATH=$$($(VENV)/bin/python tools/package_env.py torchvision-cuda) $(VENV)/bin/python benchmarks/map_style/images.py)

coverage: setup-checks
	@$(VENV)/bin/python tools/line_coverage.py

build: setup
	@tools/build_python.sh

setup:
	@tools/setup.sh build

setup-tests:
	@tools/setup.sh tests

setup-checks:
	@tools/setup.sh checks

# Rewrites the sources as the checks want them.
format: setup-checks
	@$(VENV)/bin/python tools/check_format.py --fix
	@$(VENV)/bin/ruff format --quiet .
	@$(VENV)/bin/ruff check --quiet --fix .

# Rewrites python/headrace/_core.pyi and _names.py from the extension: read the difference before you
# commit it.
stub: build
	@$(VENV)/bin/python tools/make_stub.py

clean:
	rm -rf build demo/out
