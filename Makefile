# calsweep: from a fresh clone, `make quickstart` shows it and `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# PIP_PREFER_BINARY keeps pip from building a newer source release than there is a wheel for.
PIP    := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PREFER_BINARY=1 $(BIN)/python -m pip install --quiet

# What the tests need from the system, as command:package. /usr/sbin is looked in, too.
SYSTEM := git:git chromium:chromium chromedriver:chromium-driver ip:iproute2 sshd:openssh-server \
          ssh:openssh-client rsync:rsync crontab:cron systemd-analyze:systemd pg_ctlcluster:postgresql

.PHONY: help quickstart test lint bench clean system
help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: $(VENV)/.run  ## install into .venv and run the first sweep (3 minutes)
	@$(BIN)/calsweep run sweeps/specs/quickstart.yaml
	@echo "the calsweep command is $(BIN)/calsweep (or: source $(BIN)/activate)"

test: system lint  ## everything: lint, types, tests
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(VENV)/.test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test  ## speed and memory beside the peers, as ratios in one run
	$(BIN)/python -m tests.benchmarks

clean:  ## remove the environment (sweeps in runs/ stay)
	rm -rf $(VENV)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "calsweep needs Python 3.11 or newer; say which: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python's venv module is missing (Debian: apt install python3-venv)"; exit 1; }

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) (about 3 minutes, once)"
	@$(PIP) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@$(PIP) --constraint constraints.txt --editable '.[test,lint]'
	@touch $@

system:
	@PATH="$$PATH:/usr/sbin:/sbin"; for pair in $(SYSTEM); do \
	  command -v $${pair%%:*} >/dev/null && continue; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && \
	      apt-get install -y -qq --no-install-recommends $${pair##*:} || exit 1; \
	  else \
	    echo "the tests need the command $${pair%%:*} (Debian package $${pair##*:}); install it"; \
	    exit 1; \
	  fi; \
	done
