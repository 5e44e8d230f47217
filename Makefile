# Every target makes the environment first if need be; nothing outside this folder is touched, except that
# `make test` installs a missing program of the system (tests/components.py) when it runs as root on Debian.

VENV ?= .venv
ONLY ?=
PYTEST_ARGS ?=
# Whole instances wait for one another most of the time: more workers than cores keep the cores busy.
WORKERS ?= 6
BIN := $(VENV)/bin
READY := $(VENV)/installed

# Servers and commands are started a thousand times in a run: none of them should compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check checklist lint coverage soak hostile load audit test-vm bench docs dist deb screenshots clean

help:
	@echo "make demo    run the main thing on this machine, in a temporary folder"
	@echo "make test    run all tests but the long ones"
	@echo "make check   format, lint, types, imports, tests"
	@echo "make checklist show each statement of OAR's manual with its tests and their results"
	@echo "make coverage run make test again, and compare what is reached with the floor"
	@echo "make soak    run the long tests"
	@echo "make hostile run the attacks: two accounts against a real server, on both databases"
	@echo "make load    measure what a server withstands; LOAD_SECONDS and LOAD_SUBMISSIONS make it shorter"
	@echo "make audit   compare what is installed with known vulnerabilities; ADVISORIES=DIR names the advisories"
	@echo "make test-vm run those of them that need virtual machines"
	@echo "make bench   measure; ONLY=name measures one figure"
	@echo "make docs    write the generated pages of docs/reference and man again"
	@echo "make dist    build source archive and wheel in dist/"
	@echo "make deb     build the Debian packages oarlock and oarlock-client in dist/"
	@echo "make screenshots take a picture of every page (build/screenshots) and those of the README"
	@echo "make clean   remove what was made, the environment included"

demo: $(READY)
	@$(BIN)/oarlock demo --tour

test: $(READY)
	@$(BIN)/python scripts/components
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

check: lint test

checklist: $(READY)
	@$(BIN)/python scripts/components
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m 'manual and not soak' --checklist $(PYTEST_ARGS)

lint: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/voice.py
	@$(BIN)/python scripts/subjects.py
	@$(BIN)/python scripts/node_pythons.py

# A run of its own: it takes about twice as long as `make test`, which stays quick.
coverage: $(READY)
	@$(BIN)/python scripts/components
	@$(BIN)/python -m pytest -n 4 --dist worksteal --timeout 300 --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

soak: $(READY)
	@$(BIN)/python scripts/components --soak
	@$(BIN)/python -m pytest -m soak --timeout 1800 $(PYTEST_ARGS)
	@$(if $(PYTEST_ARGS),,$(MAKE) --no-print-directory coverage)

hostile: $(READY)
	@$(BIN)/python scripts/components --soak
	@EXAMPLES=$${EXAMPLES:-2000} $(BIN)/python -m pytest -m hostile --timeout 1800 -rA $(PYTEST_ARGS)

load: $(READY)
	@$(BIN)/python scripts/components --soak
	@$(BIN)/python -m pytest -m load --timeout 6000 --capture=tee-sys $(PYTEST_ARGS)

audit: $(READY)
	@$(BIN)/python scripts/audit.py $(ADVISORIES)

test-vm: $(READY)
	@$(BIN)/python scripts/components --soak
	@$(BIN)/python -m pytest tests/vm -m soak --timeout 600 $(PYTEST_ARGS)

bench: $(READY)
	@$(BIN)/python -m bench $(if $(ONLY),ONLY=$(ONLY))

docs: $(READY)
	@$(BIN)/python -m scripts.generate_docs

dist: $(READY)
	@$(BIN)/python -m scripts.build_packages dist

deb: $(READY)
	@$(BIN)/python -m scripts.build_packages deb

screenshots: $(READY)
	@$(BIN)/python scripts/components
	@$(BIN)/python -m scripts.screenshots

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage

$(READY): pyproject.toml scripts/environment hatch_build.py src/oarlock/web/assets/browser_files.toml
	@scripts/environment $(VENV)
	@touch $@
