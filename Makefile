# Everything a fresh clone needs, each target doing its own set-up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
# Compiled modules are kept, also where the variable is set: tests start many processes.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo check test quick-tests test-gpu stress browser lint style types format bench docs tutorials notebooks wheel-docs package figures clean

help:            ## what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The demo needs only what a user installs; tests and benchmarks add their tools on top.
$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[dev,bench]'
	@touch $@ $(VENV)/.dev $(VENV)/.core

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.core

$(VENV)/.notebooks: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[notebooks]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core      ## text to a trained BERT and a report in three minutes: no download
	$(BIN)/cloze demo --force

lint: style types        ## ruff, mypy, import-linter, vocabulary, generated types

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/check_vocabulary.py
	$(BIN)/python tools/write_keywords.py --check

types: $(VENV)/.dev
	$(BIN)/mypy

# mypy, which uses one core, runs beside the tests.
test: style              ## lint and every quick test
	$(MAKE) --no-print-directory --jobs=2 types quick-tests

# A thread to each process: more than there are cores wait for each other, ten times as long on a busy machine.
quick-tests: $(VENV)/.dev
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist worksteal

check: lint              ## lint and the tests of what changed, or a quick selection: for daily use
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(JOBS) --dist worksteal $$($(BIN)/python tests/changed.py)

# On a machine that has torch and pytest but not the project: it installs nothing, and reads no test
# file without such tests, which may need more.
test-gpu:                ## tests that need a GPU, with the system's own Python
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu $$(grep -rl 'mark\.gpu' tests --include='test_*.py')

stress: $(VENV)/.dev     ## the long counts, and all examples that hypothesis generates
	CLOZE_EXAMPLES=all HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(JOBS) --dist worksteal $$(grep -rl '@given' tests --include='test_*.py')
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -m stress -n $(JOBS) --dist worksteal -rP --durations=0

browser: $(VENV)/.dev    ## saved pages and views in Chromium, without a network; installs Debian's Chromium if there is none
	tools/install_browser.sh
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -m browser tests/browser

bench: $(VENV)/.bench    ## side by side with the peers, as far as a CPU can
	HF_HUB_OFFLINE=1 $(BIN)/python bench/embed.py
	HF_HUB_OFFLINE=1 $(BIN)/python bench/pretrain.py
	HF_HUB_OFFLINE=1 $(BIN)/python bench/prepare.py
	HF_HUB_OFFLINE=1 $(BIN)/python bench/finetune.py --tasks sst2 --seeds 1
	HF_HUB_OFFLINE=1 $(BIN)/python bench/generate.py
	HF_HUB_OFFLINE=1 $(BIN)/python bench/distilbert_lr.py
	HF_HUB_OFFLINE=1 $(BIN)/python bench/word2vec.py

docs: $(VENV)/.docs      ## the documentation site: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	$(BIN)/python tools/check_site.py site

tutorials: $(VENV)/.dev  ## run the tutorials and the comparisons with other libraries as they are written
	HF_HUB_OFFLINE=1 $(BIN)/python tests/document_examples.py docs/tutorials/*.md docs/coming-from/*.md

notebooks: $(VENV)/.notebooks ## run the notebooks of docs/notebooks
	HF_HUB_OFFLINE=1 $(BIN)/pytest --nbmake --nbmake-timeout=600 docs/notebooks

wheel-docs: | $(BIN)/python ## run README and the tutorials in a new environment with the built wheel
	$(BIN)/pip install --quiet 'build>=1.2'
	$(BIN)/python tools/wheel_documents.py

package: | $(BIN)/python  ## source distribution and wheel, in dist/
	$(BIN)/pip install --quiet 'build>=1.2'
	rm -rf dist
	$(BIN)/python -m build --outdir dist

figures: $(VENV)/.dev    ## size of the code, imports, names
	$(BIN)/python bench/figures.py

format: $(VENV)/.dev     ## let ruff tidy
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis cloze-demo site
