# One way in: `make lab` opens the notebooks, `make test` proves them; everything else is `kq --help`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --custom-compile-command "make lock"
LAB    := $(VENV)/.lab
READY  := $(VENV)/.ready
SITE   := $(VENV)/.site

# What each step downloads, in MB: JupyterLab and Java, Kafka, Spark and the tests, Spark's connectors. `make lab` ends after two.
MB    := 230 57 550 10
STEPS := 2
$(READY): STEPS := 4
sum  = $$(($(subst $() ,+,$(wordlist $(1),$(STEPS),$(MB)))))
step = echo "Set-up in $(VENV), step $(1) of $(STEPS): $(2). Up to $(call sum,$(1)) MB left to download of $(call sum,1)."

# Installs a lock, and says what to do if that fails.
install = $(BIN)/python .ci/packages.py $(1) $(firstword $(MAKECMDGOALS))

help:        ## what there is
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(READY) ## everything set up: Python packages, Java, Kafka, Spark; once, about 1.8 GB and 3 minutes

own: # the first line also of a second user, who comes to a checkout that is set up
	@test -w . || { echo "kqlib: you may not write into this directory, and make lab keeps your notebooks in it. Clone kqlib into a directory of your own, and type make $(firstword $(MAKECMDGOALS)) there (docs/how-to/fix-your-machine.md)." >&2; exit 1; }

$(LAB) lab: | own

$(LAB): lab.lock pyproject.toml kqlib/runtime/jars.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; (3, 11) <= v <= (3, 13) or sys.exit("kqlib needs Python 3.11 to 3.13 and this is %d.%d: make %s PYTHON=python3.12" % (*v, "$(firstword $(MAKECMDGOALS))"))'
	@$(call step,1,JupyterLab and Java)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(call install,lab.lock)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(call step,2,Kafka)
	@$(BIN)/python -m kqlib.workshop.cluster
	@touch $@

$(READY): $(LAB) requirements.lock
	@$(call step,3,Spark and what the tests need)
	@$(call install,requirements.lock)
	@$(call step,4,the connectors of Spark)
	@$(BIN)/python -m kqlib.workshop.spark_classes
	@touch $@

lab: $(LAB)  ## JupyterLab on my/00-start-here.ipynb, a reader's copy; all but notebook 12 needs no `make venv`
	@$(BIN)/kq lab

test: venv   ## everything that CI runs: check, promises on a real Kafka, every notebook compared
	@$(BIN)/python -m tests

check: venv  ## about a minute: style, types, unit tests
	@$(BIN)/python -m tests check

notebooks: venv ## run every notebook and store its outputs anew
	@$(BIN)/python -m tests.notebooks.regenerate
	@$(BIN)/python -m tests.notebooks.pictures

films:  venv ## record the films of notebooks/films anew, from real runs
	@$(BIN)/python -m tests.notebooks.films

bench: venv  ## how fast and how big: printed, never asserted; make bench ONLY="1 peers", or ONLY=all
	@$(BIN)/python -m bench $(ONLY)

site:   $(SITE) ## this documentation and all notebooks as one folder, build/site: open its index.html; needs no network
	@$(BIN)/python -m sphinx -q -E -W --keep-going -c docs -d build/site-cache . build/site
	@echo "build/site/index.html"

$(SITE): $(READY) site.lock
	@$(call install,site.lock)
	@touch $@

nightly: venv $(SITE) ## the long tests, in parts of 40 minutes: make nightly PART=faults; without PART all of them
	@$(BIN)/python -m tests.nightly $(PART) $(if $(SHARE),--share $(SHARE)) $(if $(SEED),--seed $(SEED))

faults: PART := faults
faults: nightly ## the queue under faults, 100,000 items each: what make nightly PART=faults runs; SHARE=1/3: a third of it

crash-page: venv ## docs/crash.md anew: what workers of several libraries lose when killed; an hour; ONLY=NAME: one of them
	@$(BIN)/python -m examples.crash.page $(ONLY)

wheel: venv   ## dist/kqlib-….whl: what a project of your own installs (kq new)
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/kqlib-*.whl

lock: venv   ## remake requirements.lock, lab.lock, site.lock and jars.lock from what pyproject.toml and jars.lock ask for
	@$(COMPILE) --all-extras pyproject.toml -o requirements.lock
	@$(COMPILE) --extra avro --extra virtual --extra lab --group setup pyproject.toml -c requirements.lock -o lab.lock
	@$(COMPILE) --group site -c requirements.lock -o site.lock
	@$(BIN)/python -m kqlib.runtime.jars

clean:       ## remove what was made here; the cache of jars (KQ_CACHE) stays
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: help own venv lab test check notebooks films bench site nightly faults crash-page wheel lock clean
