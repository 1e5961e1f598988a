# Two commands are the whole set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: demo test docs format results clean

demo: $(VENV)/.demo
	$(BIN)/nps run arithmetic --quick

test: $(VENV)/.test
	$(BIN)/ruff check src tests docs examples benchmarks
	$(BIN)/ruff format --check src tests docs examples benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build

format: $(VENV)/.test
	$(BIN)/ruff check --fix src tests docs examples benchmarks
	$(BIN)/ruff format src tests docs examples benchmarks

# The tables of results in README and docs, from the committed runs.
results: $(VENV)/.demo
	$(BIN)/nps table results --into README.md docs/claims.md
	$(BIN)/nps table results/arithmetic --report --into docs/experiments/arithmetic.md
	$(BIN)/nps table results/mnist --report --into docs/experiments/mnist.md
	$(BIN)/nps table results/blocks --report --into docs/experiments/blocks.md docs/notes/blocks.md
	$(BIN)/nps table results/atari --report --into docs/experiments/atari.md docs/notes/atari.md
	$(BIN)/nps table results/balls --report --into docs/experiments/balls.md docs/notes/balls.md
	$(BIN)/python benchmarks/surgery_tables.py docs/experiments/surgery.md docs/notes/surgery.md

# torch first and by its pinned version: an unpinned one may pull gigabytes of CUDA libraries.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $$(grep '^torch==' constraints.txt)
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(PIP) install -c constraints.txt -e '.[plots]'
	touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.torch pyproject.toml
	$(PIP) install -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) docs/_build docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
