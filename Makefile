# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
# auto: the locked packages with their hashes, or the versions of constraints.txt where they do not fit
# this machine; yes: the locked ones or nothing; no: those of constraints.txt.
LOCK ?= auto
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
# The tests start hundreds of processes: each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow device-test docs dist lint types lock audit clean
.DEFAULT_GOAL := demo

PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install
# A lock is complete, so nothing is resolved; the package itself is built with what it installed.
LOCKED := --require-hashes --no-deps -r

$(VENV)/installed: pyproject.toml constraints.txt requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
ifneq ($(LOCK),no)
	@$(PIP) $(LOCKED) requirements-dev.lock && $(PIP) --no-deps --no-build-isolation -e . || { \
		echo "The locked packages do not fit this machine (they are for Linux on x86-64)." >&2; \
		[ $(LOCK) != yes ] && $(PIP) -c constraints.txt -e '.[dev]'; }
else
	$(PIP) -c constraints.txt -e '.[dev]'
endif
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

test: lint  ## types, and everything but the slow tests; mypy takes one core while the tests begin
	@$(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder; tests=$$?; \
	wait $$types && exit $$tests

test-slow: $(VENV)/installed  ## minutes of training
	$(BIN)/python -m pytest -n 2 -m slow

device-test: $(VENV)/installed  ## C on an emulated Cortex-M4 and aarch64; installs their tools from Debian
	tests/devices.sh
	$(BIN)/python -m pytest tests/test_devices.py tests/test_c_source.py

docs: $(VENV)/installed  ## the documentation as a site, in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist: $(VENV)/installed  ## a wheel and an sdist, and the wheel for devices without torch, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python packaging/edge.py dist

lint: $(VENV)/installed
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples

types: $(VENV)/installed
	$(BIN)/mypy

COMPILE = UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip compile --quiet --universal \
	--python-version 3.11 --generate-hashes --no-header --no-annotate -c constraints.txt

# Avalanche asks for every solver of quadratic programs that there is; nothing here solves one with it.
SOLVERS := clarabel cmeel cvxopt daqp ecos highspy jax jaxlib jaxopt macldlt opt-einsum osqp piqp proxsuite \
	py-mkl-pardiso pyqpmad qpalm qpax qtqp quadprog scs sip-qp-python

lock: $(VENV)/installed  ## choose the newest versions anew, with the hashes of their files
	$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements-dev.lock
	$(COMPILE) --upgrade --extra cluster -c requirements-dev.lock pyproject.toml \
		-o requirements-cluster.lock
	$(COMPILE) --upgrade --extra timm-test -c requirements-dev.lock pyproject.toml \
		-o requirements-timm.lock
	$(COMPILE) --upgrade --extra bridges-test -c requirements-dev.lock -c requirements-timm.lock \
		$(SOLVERS:%=--no-emit-package %) pyproject.toml -o requirements-bridges.lock
	$(COMPILE) --upgrade --extra watch -c requirements-dev.lock pyproject.toml \
		-o requirements-watch.lock
	sed -i '1i # Made by `make lock`: every package of the development environment, with hashes.' \
		requirements-dev.lock
	sed -i '1i # Made by `make lock`: Ray and what it needs, in the versions of the other lock.' \
		requirements-cluster.lock
	sed -i '1i # Made by `make lock`: timm, what it needs, and weights that its tests learn with.' \
		requirements-timm.lock
	sed -i '1i # Made by `make lock`: what `rivals watch` needs for videos, cameras and MQTT.' \
		requirements-watch.lock
	sed -i '1i # Made by `make lock`: libraries that rivals works beside, and what they need, for tests.' \
		requirements-bridges.lock

AUDIT := $(BIN)/python -m pip_audit --vulnerability-service osv --progress-spinner off \
	--disable-pip --require-hashes -r requirements-dev.lock

audit: $(VENV)/installed  ## known holes in the locked packages, where a network is there
	@found=$$($(AUDIT) 2>&1); status=$$?; \
	case "$$found" in \
		*"known vulnerabilit"*) printf '%s\n' "$$found"; exit $$status ;; \
		*) echo "The list of known holes could not be reached, so nothing was audited." ;; \
	esac

clean:
	rm -rf $(VENV) runs build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
