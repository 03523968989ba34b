# Every target does its own set-up; `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup lab lab-tools test tested cross test-all notebooks gallery bench referee image image-test lock clean

ARGS ?=
IMAGE ?= tvmlab
PY := .venv/bin/python
# JupyterLab refuses to run as root unless told; inside a container root is who you often are.
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

NBVAL := PYTHONPATH="$(CURDIR)/tests/offline" $(PY) -m pytest --nbval --nbval-current-env \
  --nbval-sanitize-with tests/sanitize.cfg --nbval-cell-timeout 900 -p no:cacheprovider

# What requirements.txt pins: all extras but `rivals`.
EXTRAS := onnx torch tflite peers models plot tune build progress notebooks gallery test

# The tests start a thousand processes, and each would compile all of tvmlab anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv with everything pinned (PYTHON=... and TORCH=cuda pick what is installed)
	@sh scripts/setup.sh

lab: setup ## open the workbook in JupyterLab (ARGS=... go to it, as --no-browser)
	@$(PY) -m jupyterlab --ServerApp.ip=127.0.0.1 --Application.log_level=WARN $(ROOT) \
	  --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(ARGS)

lab-tools: ## install the tools of notebook 09 from Debian's packages (as root, or by sudo)
	@sh scripts/lab-tools.sh

test: setup ## lint, type check, unit tests, and every notebook compared, offline
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache
	.venv/bin/hadolint Dockerfile
	PYTHONPATH="$(CURDIR)/tests/offline" $(PY) -m pytest tests \
	  -n auto --dist loadfile --no-loadscope-reorder --junitxml=build/tests.xml
	$(NBVAL) -n auto --dist loadfile --no-loadscope-reorder --junitxml=build/notebooks.xml \
	  $(wildcard notebooks/*.ipynb)

tested: test ## make test, and enter in docs/tested.md what it ran with
	@$(PY) scripts/tested.py

cross: setup ## fetch TVM's runtime for aarch64 (programs compiled for it need it)
	@$(PY) -m pip download --quiet --no-deps --platform manylinux_2_28_aarch64 \
	  --platform manylinux_2_24_aarch64 --implementation cp --python-version 3.12 \
	  --dest .venv/share/tvmlab -r tvmlab/assets/tvm-aarch64.txt

test-all: cross ## make test in full, other processors emulated, all pages of the site in a browser
	TVMLAB_TEST_ALL=1 $(MAKE) test

notebooks: setup ## execute the notebooks and write their outputs (ARGS=... picks some)
	@$(PY) scripts/notebooks.py $(ARGS)

gallery: setup ## build the site from the committed outputs: build/gallery/html
	@$(PY) scripts/gallery.py

bench: setup ## race the models against other runtimes (.venv/bin/pip install openvino adds one)
	@$(PY) scripts/bench.py $(ARGS)

referee: setup ## hold quantized networks in full size against LiteRT, ONNX Runtime and Relay
	$(PY) -m pytest tests/referee --junitxml=build/referee.xml $(ARGS)

image: ## build the Docker image (IMAGE=... names it)
	docker build --tag $(IMAGE) $(ARGS) .

image-test: ## build the image with buildah and test what is inside (no Docker needed)
	@sh scripts/image-test.sh

lock: setup ## compile pyproject.toml into requirements.txt (ARGS=--upgrade: newer pins)
	@$(PY) -m pip install --quiet --upgrade --target build/uv uv
	@build/uv/bin/uv pip compile pyproject.toml --quiet $(EXTRAS:%=--extra %) --universal \
	  --python-version 3.11 --custom-compile-command "make lock" $(ARGS) -o requirements.txt

clean: ## remove the environment and everything built
	rm -rf .venv build dist *.egg-info notebooks/build .pytest_cache .mypy_cache .ruff_cache .hypothesis
