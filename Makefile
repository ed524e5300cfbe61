# Everything runs in .venv, which is made and filled when it is first needed.
# Another Python than python3: make serve PYTHON=python3.12

PYTHON ?= python3
MINUTES ?= 30
BIN := .venv/bin

# What pip installs is pinned, and so is what builds the package (two names: older and newer pip look at one each).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help serve test chaos soak format stubs clean

help:
	@echo "make serve    serve models/en-de on 127.0.0.1:50051, metrics on :9464"
	@echo "make test     install what tests need, then run all checks and tests"
	@echo "make chaos    faults and floods against a real server, half an hour on 2 cores; results in bench/results"
	@echo "make soak     mixed traffic for 30 minutes (MINUTES=...), memory, files and threads watched"
	@echo "make format   put the code in its format, and mend what the linter can mend"
	@echo "make stubs    generate the gRPC code again after a change in protos/"
	@echo "make clean    remove .venv and caches"

serve: .venv/serve.done
	exec $(BIN)/lingon serve models/en-de

test: .venv/test.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/stubs.py --check
	$(BIN)/python -m pytest

chaos: .venv/test.done
	$(BIN)/python -m chaos

soak: .venv/test.done
	$(BIN)/python -m chaos soak --minutes $(MINUTES)

format: .venv/test.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: .venv/test.done
	$(BIN)/python scripts/stubs.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

.venv/serve.done: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/python -m pip install --quiet --editable '.[serve]'
	@touch $@

.venv/test.done: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/python -m pip install --quiet --editable '.[serve,export,dev]'
	@touch $@ .venv/serve.done

.venv/bin/pip:
	@command -v $(PYTHON) > /dev/null || { echo "lingon: error: $(PYTHON) is not installed; name a Python of 3.11 or later: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lingon: error: Python 3.11 or later is needed, $(PYTHON) is %d.%d; name another one: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
