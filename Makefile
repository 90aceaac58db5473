# On a machine with Python >= 3.11, make and a package index: `make demo`, `make test`.
# `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# What mypy reads.  The tests are left out: they hand in wrong types on purpose.
TYPED := syft syft_command.py tools examples benchmarks docs/conf.py docs/extensions

# Tests run in three processes, each on one thread: with more threads than cores the tiny operations
# of the tests wait for one another, and of two processes one often waits for others by itself.
# `make test` has two, since each takes a minute of processor time to list the tests.  On a larger
# machine: make WORKERS=8 test.
WORKERS := 3
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=10

# Each process that the tests start would compile syft anew, and each that runs tests would rewrite
# all of them: half of what such a process costs.
unexport PYTHONDONTWRITEBYTECODE

# The cases of torch's databases, and the attacks in two worlds, which call its operations too.  They
# are many, so they run without coverage; to list them takes seconds.
DATABASES := tests/torch_suite tests/privacy/two_worlds

# `make test` stays within ten minutes of processor time, so it runs shares, others each time: of the
# cases of the databases, and of the tests of every shell in child processes and over sockets;
SAMPLE := 0.1
# of the cases of every other test that has more than three;
CASES := 0.12
# and of the examples of each test of hypothesis.
EXAMPLES := 0.25

# What `make covered` runs of the tests of every shell, unless `make test-all` asks for all.
SHELL_SAMPLE := 0.12

# The shares of the lines and of the branches of syft/, in percent, that must run: a bar each, since
# the one of coverage.py is for their sum.  Of a sample it is a little less: a line that one case over
# sockets reaches first would fail a run that did not draw that case.
LINES := 99.9
BRANCHES := 99.0
REPORT := coverage.json

# `make test` builds the site without the pages of the modules, four fifths of what it takes.
PAGES :=

# A stamp is younger than the requirement files it installed, or it is made again.
TORCH := $(VENV)/installed-torch
DEMO := $(VENV)/installed-demo
DEV := $(VENV)/installed-dev
BEGAN := $(VENV)/processor-time
CRYPTEN := .venv-crypten/installed
SPU := .venv-spu/installed

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help native demo plans test test-all lint imports types docs tests covered databases bench \
	newest-torch stand-in-gpu mutants compare soak hooks clean distclean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO) native ## install into .venv, train on digits that stay with their owners, read others unseen
	$(BIN)/python examples/federated_digits.py
	$(BIN)/python examples/private_inference.py

native: $(TORCH) ## the extension in C, if there is a compiler; `demo`, `tests` and `bench` build it too
	@$(BIN)/python -m tools.build_native

plans: $(DEMO) ## the same digits, a training step being one message: plans against operations
	$(BIN)/python examples/train_with_a_plan.py

test: PAGES := -D module_pages=0
test: $(BEGAN) lint imports types docs tests ## every check below up to `tests`, the fast ones first; says the processor time it took
	@$(BIN)/python -m tools.processor_time since $(BEGAN) $$PPID

test-all: SHELL_SAMPLE := 1
test-all: EXAMPLES := 1
test-all: LINES := 100
test-all: lint imports types docs covered databases stand-in-gpu ## all of it: every case and example, the lines that run, the pages of the modules

lint: $(DEV) ## black and flake8
	$(BIN)/black --check .
	$(BIN)/flake8 .

imports: $(DEV) ## import-linter: the layers
	$(BIN)/lint-imports

types: $(DEV) ## mypy
	$(BIN)/mypy --strict $(TYPED)

docs: $(DEV) ## sphinx-build; a warning is an error; the site is in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going --fresh-env --quiet -j auto $(PAGES) -b html \
		docs docs/_build/html

tests: WORKERS := 2
tests: $(DEV) native ## pytest with doctests on everything, of like cases and of examples a share
	$(PYTEST) -m "not soak" --sample=$(SAMPLE) --cases=$(CASES) --examples=$(EXAMPLES)

covered: $(DEV) native ## pytest with doctests, without the databases; the lines and branches of syft/ must run
	$(PYTEST) -m "not soak" --sample=$(SHELL_SAMPLE) --examples=$(EXAMPLES) \
		$(DATABASES:%=--ignore=%) --cov --cov-report=term --cov-report=json:$(REPORT)
	$(BIN)/python -m tools.coverage_bars $(REPORT) --lines=$(LINES) --branches=$(BRANCHES)

databases: $(DEV) native ## pytest on the whole of torch's databases
	$(PYTEST) -m "not soak" $(DATABASES)

# Left out is what the stand-in cannot do: be in other processes, hold sparse layouts.
stand-in-gpu: $(DEV) ## the tests that ask for a device, with a stand-in for a GPU, if there is a C++ compiler
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.stand_in_gpu -q -m "not soak" $(DATABASES:%=--ignore=%) \
		--ignore=tests/serde/tensors/test_layouts.py -k "cuda and not (child or socket)" tests

# NEWEST=2.14.1 names another version, of which the index may have gigabytes.
NEWEST :=
newest-torch: $(DEV) ## `make tests` with the newest torch that has a build for CPUs alone, if it is newer than the pinned one
	@newest="$(NEWEST)"; test -n "$$newest" || newest=$$($(BIN)/python -m tools.newest_torch); \
	if test -z "$$newest"; then echo "no build of torch for CPUs alone is newer than the pinned one"; exit 0; fi; \
	set -e; new=.venv-torch-$$newest; echo "torch $$newest, in $$new"; \
	test -x $$new/bin/python || $(PYTHON) -m venv $$new; \
	$$new/bin/python -m pip --disable-pip-version-check install "torch==$$newest"; \
	sed '/^torch==/d; /^-r/d' requirements*.txt > $$new/requirements.txt; \
	$$new/bin/python -m pip --disable-pip-version-check install -r $$new/requirements.txt; \
	$$new/bin/python -m pip --disable-pip-version-check install --no-deps -e .; \
	OMP_NUM_THREADS=1 $$new/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not soak" \
		--sample=$(SAMPLE) --cases=$(CASES) --examples=$(EXAMPLES)

# ROOMS="guards limits" chooses; MUTANTS=0.1 tries every tenth change, others each time.
ROOMS :=
MUTANTS := 1
mutants: $(DEV) ## change guards, copies and limits one at a time, and list the changes that no test sees
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.mutants $(ROOMS) --share=$(MUTANTS)

bench: $(DEV) native ## the figures, as ratios to floors measured in the same run
	@mkdir -p .benchmarks
	$(BIN)/python -m pytest benchmarks --figures=.benchmarks/figures.md \
		--benchmark-json=.benchmarks/figures.json

# A library that cannot be installed is left out: the table says so.
compare: $(DEMO) ## sharing beside CrypTen and SPU, each in an environment of its own (gigabytes)
	-@$(MAKE) $(CRYPTEN)
	-@$(MAKE) $(SPU)
	$(BIN)/python -m benchmarks.compare --write=benchmarks/results/sharing.md

soak: $(DEV) ## the tests that take minutes
	$(BIN)/python -m pytest -m soak

hooks: $(DEV) ## have git run lint, imports and types before each commit
	$(BIN)/pre-commit install

clean: ## remove what the other targets made, but for .venv
	rm -rf build dist *.egg-info htmlcov .coverage .coverage.* coverage.json examples/output
	rm -rf docs/_build docs/api docs/project docs/reference docs/tutorials
	rm -rf .mypy_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	rm -f syft/_native.*.so
	find syft tests tools examples benchmarks docs -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and the environments of compare
	rm -rf $(VENV) .venv-crypten .venv-spu .venv-torch-*

# torch comes first and alone: whatever is installed after it must be content with this one.
# A requirement that names torch without a version could fetch another build, gigabytes of it.
$(TORCH): requirements.txt
	@command -v $(PYTHON) >/dev/null || { \
		echo "'$(PYTHON)' is not there. Install Python 3.11 or newer, or name one: make PYTHON=..." >&2; \
		exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "syft needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name a newer one: make PYTHON=python3.12 ..." >&2; \
		exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install $$(grep '^torch==' requirements.txt)
	@touch $@

$(DEMO): $(TORCH) requirements-demo.txt
	$(PIP) install -r requirements-demo.txt -e '.[demo]'
	@touch $@

$(DEV): $(DEMO) requirements-dev.txt
	$(PIP) install -r requirements-dev.txt
	@touch $@

# What make's commands had taken when everything was installed.
.PHONY: $(BEGAN)
$(BEGAN): $(DEV)
	@$(BIN)/python -m tools.processor_time begin $@ $$PPID

$(CRYPTEN): requirements.txt benchmarks/compare/requirements-crypten.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install $$(grep '^torch==' requirements.txt)
	$(@D)/bin/python -m pip install -r benchmarks/compare/requirements-crypten.txt
	$(@D)/bin/python -m pip install --no-deps crypten==0.4.1
	@touch $@

$(SPU): benchmarks/compare/requirements-spu.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -r benchmarks/compare/requirements-spu.txt
	@touch $@
