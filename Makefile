# calsweep: from a fresh clone, `make quickstart` shows it and `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# PIP_PREFER_BINARY keeps pip from building a newer source release than there is a wheel for.
PIP    := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PREFER_BINARY=1 $(BIN)/python -m pip install --quiet

# What the tests need from the system, as command:package. /usr/sbin is looked in, too.
SYSTEM := git:git chromium:chromium chromedriver:chromium-driver ip:iproute2 sshd:openssh-server \
          ssh:openssh-client rsync:rsync crontab:cron systemd-analyze:systemd pg_ctlcluster:postgresql \
          sbatch:slurm-wlm slurmd:slurm-wlm munged:munge

# In the order of tests/conftest.py: pytest-xdist would begin small files last, and the longest tests
# are in small ones.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

.PHONY: help quickstart check fast test lint numeric minimum bench docs clean system
help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: $(VENV)/.run  ## install into .venv and run the first sweep (5 minutes)
	@$(BIN)/calsweep run sweeps/specs/quickstart.yaml
	@echo "the calsweep command is $(BIN)/calsweep (or: source $(BIN)/activate)"

check: lint fast  ## before every commit: lint, types and the fast tests (4 minutes)

fast: $(VENV)/.test  ## the tests that start no Ray, server, browser or namespace
	$(PYTEST) --numprocesses 2 -m "not slow"

# mypy and the numeric tests compute; many of the others wait for servers and processes, so that
# three at once keep two cores busy (a fourth, or mypy beside them, made everything take longer).
test: system  ## everything: lint, types, tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint numeric
	$(PYTEST) --numprocesses 3 --durations 30

lint: $(VENV)/.test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

numeric: $(VENV)/.test  ## the numeric tests as processors without AVX-512 and AVX2 compute them
	$(BIN)/python -m tests.instruction_sets

minimum: $(VENV)-minimum/.test  ## the fast tests with the oldest versions that pyproject.toml allows
	$(VENV)-minimum/bin/python -m pytest --numprocesses 2 -m "not slow"

bench: $(VENV)/.test  ## speed and memory beside the peers, as ratios in one run
	$(BIN)/python -m tests.benchmarks

docs: $(VENV)/.docs  ## the documentation, as a site in docs/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file docs/mkdocs.yml

clean:  ## remove the environment (sweeps in runs/ stay)
	rm -rf $(VENV) $(VENV)-minimum

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "calsweep needs Python 3.11 or newer; name it: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python's venv module is missing (Debian: apt install python3-venv)"; exit 1; }

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) (about 3 minutes, once)"
	@$(PIP) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@$(PIP) --constraint constraints.txt --editable '.[test,lint]'
	@touch $@

$(VENV)-minimum/.test: pyproject.toml constraints-minimum.txt
	@$(PYTHON) -m venv $(VENV)-minimum
	@PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PREFER_BINARY=1 $(VENV)-minimum/bin/python -m pip install --quiet \
	  --constraint constraints-minimum.txt --editable '.[test]'
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	@$(PIP) --constraint constraints.txt --editable '.[docs]'
	@touch $@

# Another apt may be at work, as on a machine that has just started. DPkg::Lock::Timeout makes
# install wait for it, but not update.
system:
	@PATH="$$PATH:/usr/sbin:/sbin"; lacking=""; for pair in $(SYSTEM); do \
	  command -v $${pair%%:*} >/dev/null || lacking="$$lacking $${pair##*:}"; \
	done; \
	[ -n "$$lacking" ] || exit 0; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "the tests need the Debian packages$$lacking; install them"; exit 1; \
	fi; \
	for try in $$(seq 120); do \
	  output=$$(LC_ALL=C apt-get update -qq 2>&1) && break; \
	  case "$$try $$output" in \
	    "120 "* ) echo "$$output"; exit 1;; \
	    *"Could not get lock"* ) sleep 5;; \
	    * ) echo "$$output"; exit 1;; \
	  esac; \
	done; \
	apt-get install -y -qq -o DPkg::Lock::Timeout=600 --no-install-recommends $$lacking
