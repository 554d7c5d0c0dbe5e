# Each target does its own set-up, in .venv, and says what it is doing. A second run is ready at once.

RUN = PYTHONPATH=src .venv/bin/python
ENGINES ?= vllm,sglang,llama-server,llama-cpp-old
.DEFAULT_GOAL = help
.PHONY: help demo test check lint test-engines test-oracle docs reference lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: ## Bring a small real model up on this machine, verify it, take it down (no GPU needed)
	@sh tools/setup.sh demo
	@exec env $(RUN) -m bringup demo $(ARGS)

test: check ## The same as `make check`

check: lint ## Format, lint, types, contracts, spelling, documentation drift, sizes, tests
	@echo "== tests"
	@$(RUN) -m pytest $(ARGS)

lint: ## All of that but the tests
	@sh tools/setup.sh dev
	@echo "== format"
	@$(RUN) -m ruff format --check .
	@echo "== lint"
	@$(RUN) -m ruff check .
	@echo "== types"
	@$(RUN) -m pyright
	@echo "== contracts"
	@$(RUN) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"
	@echo "== spelling"
	@$(RUN) -m codespell_lib
	@echo "== units"
	@$(RUN) tools/check_units.py
	@echo "== documentation"
	@$(RUN) tools/gen_reference.py --check
	@echo "== sizes (aims, not limits)"
	@$(RUN) tools/measure.py

test-engines: ## Only the tests that start real engines, installed first (vLLM: 3.5 GB); ENGINES=vllm,sglang,...
	@sh tools/setup.sh dev
	@BRINGUP_ENGINES=$(ENGINES) $(RUN) -m pytest -m engine $(ARGS)

test-oracle: ## Compare the KV rules with vLLM's own functions, installed first unless BRINGUP_ORACLE_PYTHON names a Python with it
	@sh tools/setup.sh dev
	@BRINGUP_ENGINES=$${BRINGUP_ENGINES-vllm} $(RUN) -m pytest -m oracle tests/oracle -s $(ARGS)

docs: reference ## Build the documentation into site/
	@sh tools/setup.sh docs
	@$(RUN) -m zensical build

reference: ## Write docs/reference anew from the code
	@sh tools/setup.sh dev
	@$(RUN) tools/gen_reference.py

lock: ## Choose the versions in uv.lock anew (needs the network)
	@sh tools/setup.sh dev
	@PATH="$$PWD/.venv/bin:$$PATH" uv lock --upgrade

clean: ## Remove caches and built files; .venv stays (`rm -r .venv` removes it)
	@rm -rf .tools .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* \
		build dist site bringup-demo
	@find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@echo "removed caches and built files"
