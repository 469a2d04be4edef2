# Two commands on a fresh machine: `make demo` and `make test`. Everything lives in .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL_VENV := .venv-model
STAMP := $(VENV)/.installed
# An editable install in strict mode is a tree of links: a new file needs a new install.
SOURCES := $(shell find collector agent prompts -name '*.py' -o -name '*.j2' 2>/dev/null | sort)

.PHONY: demo test check unit test-model small-model bench score ablation ablation-prompts healthy device replays install clean

demo: $(STAMP)
	@echo '$$ weaklink diagnose replays/stale_head/train.py'
	@# A divergence is what the demo is there to find: exit code 1 is its success, any other one is not.
	@code=0; $(BIN)/weaklink diagnose replays/stale_head/train.py || code=$$?; \
	if [ $$code -ne 1 ]; then echo "demo: expected exit code 1 (a divergence), got $$code" >&2; exit 1; fi

test: check unit

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p weaklink.agent -p weaklink.collector

unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/unit -n 2 --dist loadfile
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/integration -n 2 --dist worksteal

# A small language model behind real servers. The first run compiles them: minutes; later ones find them in the cache.
test-model: $(STAMP)
	$(PYTHON) tests/model/build_server.py --venv $(MODEL_VENV)
	WEAKLINK_MODEL_VENV=$(MODEL_VENV) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/model

# What that model says of each replay, and what becomes of it: the figures of benchmarks/RESULTS.md.
small-model: $(STAMP)
	$(PYTHON) tests/model/build_server.py --venv $(MODEL_VENV)
	WEAKLINK_MODEL_VENV=$(MODEL_VENV) OMP_NUM_THREADS=1 $(BIN)/python benchmarks/small_model.py

# All healthy scripts and loops, of which `make test` takes every fifth: nobody may be accused or suspected.
healthy: $(STAMP)
	WEAKLINK_ALL=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/unit/test_close_up_healthy.py \
	    tests/integration/test_healthy_scripts.py -n 2 --dist worksteal

bench: $(STAMP)
	$(BIN)/python benchmarks/diagnose_cost.py
	$(BIN)/python benchmarks/ledger_cost.py
	$(BIN)/python benchmarks/observe_cost.py

# Every case in tests/cases, broken and repaired: half an hour on two cores. Some of them train with lightning.
score: $(STAMP)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[score]' --config-settings editable_mode=strict
	$(BIN)/python benchmarks/score

# What the evidence is worth to a model: `make ablation MODEL=NAME [BASE_URL=URL] [SAMPLE=N] [CASES=...] [ARMS=...]
# [CONTEXT=N] [SEED=N] [PRICES=IN,OUT] [ANSWERS=DIR] [ASK=no]`. Without MODEL it says how; see benchmarks/ablation/README.md.
ABLATION = $(BIN)/python benchmarks/ablation $(if $(MODEL),--model '$(MODEL)') $(if $(BASE_URL),--base-url '$(BASE_URL)') \
    $(if $(SAMPLE),--sample '$(SAMPLE)') $(if $(CASES),--cases '$(CASES)') $(if $(ARMS),--arms '$(ARMS)') \
    $(if $(CONTEXT),--context '$(CONTEXT)') $(if $(SEED),--seed '$(SEED)') $(if $(ANSWERS),--answers '$(ANSWERS)') \
    $(if $(PRICES),--prices '$(PRICES)')

ablation: $(STAMP)
	$(if $(MODEL),$(BIN)/python -m pip install -q -c constraints.txt -e '.[score]' --config-settings editable_mode=strict)
	$(ABLATION) $(if $(filter no,$(ASK)),--offline)

ablation-prompts: $(STAMP)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[score]' --config-settings editable_mode=strict
	$(ABLATION) --prompts

# Only where there is an accelerator: chain, figures and cost there, against the CPU's.
device: $(STAMP)
	$(BIN)/python benchmarks/on_device.py --device cuda

replays: $(STAMP)
	$(BIN)/weaklink replay --all

install: $(STAMP)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt $(VENV)/.sources
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]' --config-settings editable_mode=strict
	@touch $@

# Changes only when a file is added or removed.
$(VENV)/.sources: $(VENV)/bin/python FORCE
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@

FORCE:

clean:
	rm -rf $(VENV) $(MODEL_VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
