# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-slow device-test docs lint types clean
.DEFAULT_GOAL := demo

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/installed  ## learn five tasks from the bundled digits, one after the other
	rm -rf runs/demo
	$(BIN)/rivals run digits --out runs/demo
	@echo
	@echo "Next:"
	@echo "  $(BIN)/rivals info runs/demo                                   accuracy and size of every task"
	@echo "  $(BIN)/rivals run digits --method finetune --out runs/forgets  plain training, which forgets"
	@echo "  $(BIN)/rivals run digits-permuted --out runs/permuted          twenty tasks"
	@echo "  $(BIN)/rivals                                                  more examples"

test: lint types  ## everything but the slow tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-slow: $(VENV)/installed  ## minutes of training
	$(BIN)/python -m pytest -n 2 -m slow

device-test: $(VENV)/installed  ## C on an emulated Cortex-M4 and aarch64; installs their tools from Debian
	tests/devices.sh
	$(BIN)/python -m pytest tests/test_devices.py tests/test_c_source.py

docs: $(VENV)/installed  ## the documentation as a site, in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: $(VENV)/installed
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(VENV)/installed
	$(BIN)/mypy

clean:
	rm -rf $(VENV) runs build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
