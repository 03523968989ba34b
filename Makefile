# Every target does its own set-up; `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup lab lab-tools test tested cross test-all notebooks gallery bench scoreboard referee image image-test lock clean

ARGS ?=
IMAGE ?= tvmlab
PY := .venv/bin/python
# JupyterLab runs as root only with --allow-root, and in a container the user is often root.
ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

NBVAL := PYTHONPATH="$(CURDIR)/tests/offline" $(PY) -m pytest --nbval --nbval-current-env \
  --nbval-sanitize-with tests/sanitize.cfg --nbval-cell-timeout 900 -p no:cacheprovider

# The extras that requirements.txt pins: all except `rivals`.
EXTRAS := onnx torch tflite peers models plot tune build progress notebooks gallery test

# The tests start a thousand processes. Without byte code files, each would compile tvmlab again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## create .venv with pinned packages (PYTHON=... selects Python, TORCH=cuda PyTorch for CUDA)
	@sh scripts/setup.sh

lab: setup ## open the workbook in JupyterLab (ARGS=... are its options, such as --no-browser)
	@$(PY) -m jupyterlab --ServerApp.ip=127.0.0.1 --Application.log_level=WARN $(ROOT) \
	  --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(ARGS)

lab-tools: ## install the tools of notebook 09 from Debian packages (as root, or with sudo)
	@sh scripts/lab-tools.sh

test: setup ## run lint, type checks, unit tests and all notebooks, offline
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache
	.venv/bin/hadolint Dockerfile
	PYTHONPATH="$(CURDIR)/tests/offline" $(PY) -m pytest tests \
	  -n auto --dist loadfile --no-loadscope-reorder --junitxml=build/tests.xml
	$(NBVAL) -n auto --dist loadfile --no-loadscope-reorder --junitxml=build/notebooks.xml \
	  $(wildcard notebooks/*.ipynb)

tested: test ## run make test, and enter the result and versions in docs/tested.md
	@$(PY) scripts/tested.py

cross: setup ## download TVM's runtime for aarch64, for programs compiled for aarch64
	@$(PY) -m pip download --quiet --no-deps --platform manylinux_2_28_aarch64 \
	  --platform manylinux_2_24_aarch64 --implementation cp --python-version 3.12 \
	  --dest .venv/share/tvmlab -r tvmlab/assets/tvm-aarch64.txt

test-all: cross ## run all tests: also on emulated processors, and all pages of the site in a browser
	TVMLAB_TEST_ALL=1 $(MAKE) test

notebooks: setup ## execute the notebooks and write their outputs (ARGS=... selects notebooks)
	@$(PY) scripts/notebooks.py $(ARGS)

gallery: setup ## build the website from the committed outputs: build/gallery/html
	@$(PY) scripts/gallery.py

bench: setup ## compare the speed with other runtimes (.venv/bin/pip install openvino adds OpenVINO)
	@$(PY) scripts/bench.py $(ARGS)

scoreboard: setup ## count the models that are imported and run correctly, in docs/scoreboard.md
	@$(PY) scripts/scoreboard.py $(ARGS)

referee: setup ## compare full-size quantized networks with LiteRT, ONNX Runtime and Relay
	$(PY) -m pytest tests/referee --junitxml=build/referee.xml $(ARGS)

image: ## build the Docker image (IMAGE=... names it)
	docker build --tag $(IMAGE) $(ARGS) .

image-test: ## build the image with buildah instead of Docker, and test it
	@sh scripts/image-test.sh

lock: setup ## write requirements.txt from pyproject.toml (ARGS=--upgrade updates the pins)
	@$(PY) -m pip install --quiet --upgrade --target build/uv uv
	@build/uv/bin/uv pip compile pyproject.toml --quiet $(EXTRAS:%=--extra %) --universal \
	  --python-version 3.11 --custom-compile-command "make lock" $(ARGS) -o requirements.txt

clean: ## remove .venv and all build outputs
	rm -rf .venv build dist *.egg-info notebooks/build .pytest_cache .mypy_cache .ruff_cache .hypothesis
