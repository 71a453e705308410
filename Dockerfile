# The wheel is built in one stage and installed in another, so the final image holds no source. A CPU image holds no
# compiler either; a CUDA image has gcc and the headers of Python, because Triton compiles a C file for each GPU kernel.
#
#   docker build -t fna-lightning .                                                                 CPU image
#   docker build -t fna-lightning:cuda --build-arg BASE=nvidia/cuda:13.0.1-runtime-ubuntu24.04 .    CUDA image
#   docker run --rm -v runs:/home/fna/runs fna-lightning fit --config reviews_fna.yaml
#   docker run --rm --gpus all --shm-size 8g -v runs:/home/fna/runs fna-lightning:cuda fit --config reviews_fna.yaml
#   docker run --rm -v runs:/home/fna/runs -p 6006:6006 --entrypoint tensorboard \
#       fna-lightning --logdir runs --host 0.0.0.0
#
# BASE must be Debian or Ubuntu with Python 3.11 or later in its packages. On x86, torch from PyPI includes CUDA. For a
# CPU image of a third of the size, pass --build-arg TORCH_INDEX=<PyTorch's index of CPU wheels>.
ARG BASE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE} AS python
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv ca-certificates \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/fna/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/fna

FROM python AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN pip wheel --no-deps --wheel-dir /wheels .

# Torch comes before the wheel, so that a change of the source reuses the large torch layer.
FROM python AS dependencies
ARG TORCH_INDEX=
COPY constraints.txt /tmp/constraints.txt
RUN pip install -c /tmp/constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch torchvision
COPY --from=build /wheels /wheels
RUN pip install -c /tmp/constraints.txt /wheels/*.whl \
    && pip uninstall --yes pip \
    && find /opt/fna -name __pycache__ -prune -exec rm -rf {} +

# hadolint ignore=DL3006
FROM ${BASE}
ARG BASE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="fna-lightning" \
      org.opencontainers.image.description="Fractional neural attention: train, compare and study models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 ca-certificates \
    && case "$BASE" in *cuda*) apt-get install -y --no-install-recommends gcc libc6-dev python3-dev ;; esac \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 fna \
    && install -d -o fna -g fna /home/fna/data /home/fna/runs /home/fna/cache
COPY --from=dependencies /opt/fna /opt/fna
ENV PATH=/opt/fna/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FNA_DATA=/home/fna/data \
    FNA_CACHE=/home/fna/cache
USER 10001
WORKDIR /home/fna
VOLUME ["/home/fna/data", "/home/fna/runs", "/home/fna/cache"]
HEALTHCHECK --interval=5m --timeout=60s --start-period=30s CMD ["fna-lightning", "list", "kernels"]
ENTRYPOINT ["fna-lightning"]
CMD ["--help"]
