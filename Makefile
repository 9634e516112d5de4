# The one entry for people and CI. `make run` and `make test` need only Python 3.11+, pip, git and make.

PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
	$(shell command -v $(p) >/dev/null 2>&1 && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))) python3)
BIN := .venv/bin
CODE := services gateway tests benchmark tools
PROTOS := $(shell find protos/hippovault -name '*.proto')

.PHONY: help setup run stop test lint types protos protos-check lock bench-recall bench-surprise bench-storage bench-embedding bench-latency

help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: ## Makes .venv what requirements.lock says
	@$(PYTHON) tools/setup_venv.py

run: setup ## Starts a working memory and shows it at work
	@$(BIN)/python tools/first_run.py

stop: ## Stops the memory that `make run` started
	@test ! -x $(BIN)/hippovault || $(BIN)/hippovault down

test: setup ## Runs every test
	@$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

lint: setup protos-check ## Style, import contracts, declared dependencies, proto lint, stale generated code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/check_dependencies.py
	@cd protos && ../$(BIN)/buf lint

types: setup ## mypy --strict over code and tests
	@$(BIN)/mypy $(CODE)

protos: setup ## Regenerates the code of protos/
	@cd protos && PATH=$(CURDIR)/$(BIN):$$PATH python -m grpc_tools.protoc -I . \
		--python_out=src --grpc_python_out=src --mypy_out=quiet:src --mypy_grpc_out=quiet:src \
		$(PROTOS:protos/%=%)

protos-check: setup ## Fails when the generated code is stale
	@$(BIN)/python tools/check_protos.py

lock: ## Resolves requirements.lock anew (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv"; exit 2; }
	@uv lock --quiet --upgrade && uv export --quiet --all-packages --all-groups --no-emit-workspace --no-header \
		--output-file requirements.lock

bench-recall: setup ## Recall on real conversations: make bench-recall DATA=…/locomo_dev.json.gz
	@test -n "$(DATA)" || { echo "DATA is missing: make bench-recall DATA=path/to/dataset.json.gz"; exit 2; }
	@$(BIN)/python -m benchmark.recall $(DATA) $(ARGS)

bench-surprise: setup ## What the surprise boost gains, in several orders of storing, by both versions of the rule
	@$(BIN)/python -m benchmark.surprise $(ARGS)

bench-storage: setup ## Speed and size of the storage service: make bench-storage DATA=…/texts.jsonl.gz
	@$(BIN)/python -m benchmark.storage $(DATA) $(ARGS)

bench-embedding: setup ## Speed and size of the embedding service: make bench-embedding DATA=…/texts.jsonl.gz
	@$(BIN)/python -m benchmark.embedding $(DATA) $(ARGS)

bench-latency: setup ## Time of a recall at each door, of a session's start: make bench-latency DATA=…/texts.jsonl.gz
	@$(BIN)/python -m benchmark.latency $(DATA) $(ARGS)
