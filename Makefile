# Thin: each target is one line a person could type. PYTHON=/path/to/python3 picks the interpreter.
.DEFAULT_GOAL := help
.NOTPARALLEL:

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
NAME  ?= refresh
ARGS  ?=
RUN   := $(BIN)/python -m pytest -n 2 --dist worksteal
KEEP  := FAIRLEAD_RESULTS=$${FAIRLEAD_RESULTS:-results}

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-25s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(READY) ## set everything up and watch the main job: hundreds of refreshes, a killed worker
	@$(BIN)/fairlead demo $(ARGS)

.PHONY: test-unit
test-unit: $(READY) ## policy, engine, and each contract on memory: no server is started (ARGS="-k ... -x")
	@$(RUN) --tier unit $(ARGS)

.PHONY: test
test: $(READY) ## test-unit, and contracts, SQL and security on servers that it starts itself
	@$(RUN) --tier unit,main $(ARGS)

.PHONY: test-slow
test-slow: $(READY) ## what test leaves out: clusters, Redis 6.2, every block of the pages, faults, simulation
	@$(RUN) --tier slow $(or $(ARGS),--docs)
	@$(if $(ARGS),,$(BIN)/python -m tests.simulation --seeds 200)
	@$(if $(ARGS),,$(BIN)/python -m tests.simulation --same)

.PHONY: test-nightly
test-nightly: $(READY) ## the ablations and the models; by hand as well: faults, soak, bench
	@$(RUN) --tier nightly $(ARGS)

.PHONY: docs
docs: $(READY) ## run every block of the tutorial and the how-to pages, and say how many
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -p no:randomly --docs \
		-k "tutorial or recipes or test_readme or docs or reference or pages" tests/e2e/test_tutorial.py tests/e2e tests/lint $(ARGS)

.PHONY: check
check: $(READY) ## format, lint, types, floors and our own lint tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q --tier check

.PHONY: faults
faults: $(READY) ## the fault experiments in full size, and a verdict on each (ARGS="-k E42")
	@$(BIN)/python -m tests.faults $(ARGS)

.PHONY: soak
soak: $(READY) ## half an hour of everything at once, with a fault a minute (FAIRLEAD_SOAK_S=600)
	@FAIRLEAD_SOAK_S=$${FAIRLEAD_SOAK_S:-1800} $(BIN)/python -m tests.faults -k E52 $(ARGS)

.PHONY: models
models: $(READY) ## every state of the protocols, with and without each safeguard (needs spin and gcc)
	@for tool in spin gcc; do command -v $$tool > /dev/null || { \
	    echo "make models needs $$tool (Debian: apt-get install spin gcc)" >&2; exit 1; }; done
	@$(BIN)/python -m pytest -q -rs -s -n 0 -p no:randomly tests/models $(ARGS)

.PHONY: simulate
simulate: $(READY) ## 200 seeds of a fleet in simulated time, some in three interpreters (ARGS="--from 1000")
	@$(KEEP) $(BIN)/python -m tests.simulation --seeds 200 $(ARGS)
	@$(KEEP) $(BIN)/python -m tests.simulation --same

.PHONY: simulate-ablations
simulate-ablations: $(READY) ## each safeguard in turn taken out of the simulated fleet, and what finds it
	@$(KEEP) $(BIN)/python -m tests.simulation --ablations --seeds 200 $(ARGS)

.PHONY: security
security: $(READY) ## the security checklist S01-S36: every test that it names, and a table of verdicts
	@$(BIN)/python -m tests.security $(ARGS)

.PHONY: sbom
sbom: $(READY) ## the bill of materials of this environment, as CycloneDX (stdout)
	@$(BIN)/python -m tools.sbom

.PHONY: bench
bench: $(READY) ## one benchmark (NAME=queue, fairness, bloat, gate, handover, utilisation, call, storm, sweep; ARGS=--json)
	@$(BIN)/python -m bench $(NAME) $(ARGS)

.PHONY: fmt
fmt: $(READY) ## format, and mend what the linter can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: setup
setup: $(READY) ## only create .venv with the locked versions

.PHONY: lock
lock: ## resolve requirements/dev.txt anew (UPGRADE=1 takes newer versions)
	@sh tools/lock.sh

.PHONY: clean
clean: ## remove .venv and caches; .fairlead/ (your data) stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements/dev.txt pyproject.toml tools/setup.sh
	@PYTHON="$(PYTHON)" sh tools/setup.sh $(VENV)
