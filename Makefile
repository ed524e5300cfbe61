# Everything runs in .venv, which is created when it is first needed.
# To use a Python other than python3: make serve PYTHON=python3.12

PYTHON ?= python3
MINUTES ?= 30
BIN := .venv/bin

# The versions that pip installs are pinned, and so are those that build the package.
# Older and newer versions of pip each read one of these two variables.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Packages are compiled when they are installed, whatever the environment says: PyTorch loads in half the time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help serve test coverage checks kernels kernels-test e2e docs reliability soak format stubs locks audit release clean

help:
	@echo "make serve    serve models/en-de and models/en-fr on 127.0.0.1:50051, metrics on :9464"
	@echo "make test     install the test tools, then run all checks and tests"
	@echo "make coverage  run them and measure the coverage of lingon; fails below fail_under in pyproject.toml"
	@echo "make checks   run the checks alone: format, linter, types, import rules, generated code"
	@echo "make kernels  compile the native operators of int8-native and fp32-native; needs a C++ compiler"
	@echo "make kernels-test  run the native operators on random nodes under sanitizers"
	@echo "make e2e      install clients in other languages (Node, h2load, Prometheus) and test a real server with them"
	@echo "make docs     build the documentation site in build/docs; open build/docs/index.html"
	@echo "make format   format the code and apply the linter's fixes"
	@echo "make stubs    generate the gRPC code again after a change in protos/"
	@echo "make reliability  run the cases of load and faults on a real server: 50 minutes on 2 cores; results in bench/results"
	@echo "make soak     run mixed traffic for 30 minutes (MINUTES=...) and watch memory, files and threads"
	@echo "make locks    write the hashes of all packages again after a change in pyproject.toml or constraints.txt"
	@echo "make audit    look up known vulnerabilities of all locked packages; needs the network"
	@echo "make release  build, check and tag the wheels of a version; needs the network; ARGUMENTS=--rehearse sets no tag"
	@echo "make clean    remove .venv, build and caches"

# The operators are compiled while pip installs. Without them the standard graphs serve.
serve:
	@$(MAKE) --no-print-directory --jobs 2 .venv/serve.done kernels-or-none
	exec $(BIN)/lingon serve models

kernels: | .venv/bin/pip
	$(BIN)/python kernels/build.py

kernels-test: | .venv/bin/pip
	$(BIN)/python kernels/tests/run.py

.PHONY: kernels-or-none kernels-if-possible
kernels-if-possible: | .venv/bin/pip
	@$(BIN)/python kernels/build.py --optional

kernels-or-none: | .venv/bin/pip
	@$(BIN)/python kernels/build.py --optional || echo "lingon: the native operators are left out: they do not compile" >&2

.PHONY: tests-with-servers tests-of-models tests-apart
# Three processes run side by side, because tests of servers often wait. The other two have a low priority: they delay
# no server, and hardly any of their tests starts one.
MODELS := tests/export tests/importers tests/invariance tests/kernels tests/training
APART := tests/bench tests/docs tests/end_to_end tests/integration tests/test_install.py tests/test_wheel.py
TESTS := tests-with-servers tests-of-models tests-apart
COVERAGE := --no-cov

test: .venv/test.done kernels-if-possible
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=line $(TESTS)

# Apart from `test`, because the tracer of coverage.py adds half to the time of the tests before Python 3.12.
coverage: .venv/test.done kernels-if-possible
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=line $(TESTS) COVERAGE='--cov --cov-report= --cov-fail-under=0'
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --format=total

tests-with-servers: .venv/test.done
	COVERAGE_FILE=.coverage.servers $(BIN)/python -m pytest $(COVERAGE) $(addprefix --ignore=,$(MODELS) $(APART))

tests-of-models: .venv/test.done
	COVERAGE_FILE=.coverage.models nice -n 5 $(BIN)/python -m pytest $(COVERAGE) $(MODELS)

tests-apart: checks
	COVERAGE_FILE=.coverage.apart nice -n 5 $(BIN)/python -m pytest $(COVERAGE) $(APART)

checks: .venv/test.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/stubs.py --check
	$(BIN)/python scripts/openapi.py --check
	$(BIN)/python -m scripts.descriptors --check

e2e: .venv/test.done
	@$(BIN)/python -m tests.support.foreign_clients
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r deploy/locks/ray.txt
	TEST_SCALE=full $(BIN)/python -m pytest tests/foreign tests/gateway tests/bulk tests/lingon/test_ray.py tests/training/test_ray_tasks.py tests/deploy/test_promtool.py tests/deploy/test_rehearsal.py \
		tests/deploy/test_envoy.py

docs: .venv/test.done
	$(BIN)/sphinx-build --fresh-env --nitpicky --fail-on-warning --keep-going --jobs auto --quiet docs build/docs

reliability: .venv/test.done
	TEST_SCALE=full $(BIN)/python -m pytest -m reliability tests/reliability

soak: .venv/test.done
	TEST_SCALE=full SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest -m soak tests/reliability

format: .venv/test.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: .venv/test.done
	$(BIN)/python scripts/stubs.py
	$(BIN)/python scripts/openapi.py
	$(BIN)/python -m scripts.descriptors

locks: .venv/test.done
	$(BIN)/python deploy/lock.py

# The tool is installed by hash into an environment of its own, so that it changes no version of .venv.
AUDIT := build/audit/bin
audit:
	@$(PYTHON) -m venv build/audit
	@$(AUDIT)/python -m pip install --quiet --require-hashes -r deploy/locks/audit.txt
	@result=0; for lock in deploy/locks/*.txt; do \
		echo "$$lock"; $(AUDIT)/pip-audit --require-hashes --disable-pip --requirement "$$lock" || result=1; \
	done; exit $$result

# Its tools are apart too. The script says what it refuses; it uploads nothing without ARGUMENTS=--upload.
release:
	@$(PYTHON) -m venv build/release
	@build/release/bin/python -m pip install --quiet --require-hashes -r deploy/locks/release.txt
	build/release/bin/python -m scripts.release $(ARGUMENTS)

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	rm -rf tests/foreign/node/node_modules serving/runtime/lingon_kernels.so serving/runtime/lingon_card.so

# Every file is checked against its hash. The lock has all that the package needs, so that --no-deps leaves nothing out.
.venv/serve.done: pyproject.toml constraints.txt $(wildcard deploy/locks/*.txt) | .venv/bin/pip
	@echo "installs the server into .venv: a minute with the native operators, longer on a slow network"
	$(BIN)/python -m pip install --quiet --require-hashes -r deploy/locks/build.txt -r deploy/locks/serve.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# torch and its libraries are in no lock (deploy/lock.py says why): the second command installs their pinned versions.
# pip compiles no module: Python compiles those that it imports, a quarter of all, and pip takes half a minute for all.
.venv/test.done: pyproject.toml constraints.txt $(wildcard deploy/locks/*.txt) | .venv/bin/pip
	@echo "installs the test tools into .venv: some minutes, and some gigabytes for PyTorch"
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11, 5) and "lingon: error: the test tools need Python 3.11.5 or later, .venv has %d.%d.%d; make clean, then name another one: make test PYTHON=python3.12" % sys.version_info[:3])'
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r deploy/locks/build.txt -r deploy/locks/dev.txt
	$(BIN)/python -m pip install --quiet --no-compile --no-build-isolation --editable '.[serve,export,dev]'
	@touch $@ .venv/serve.done

.venv/bin/pip:
	@command -v $(PYTHON) > /dev/null || { echo "lingon: error: $(PYTHON) is not installed; name a Python of 3.11 or later: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lingon: error: Python 3.11 or later is needed, $(PYTHON) is %d.%d; name another one: make PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv || { rm -rf .venv; echo "lingon: error: $(PYTHON) cannot make a virtual environment; on Debian install python3-venv" >&2; exit 1; }
