# Two stages: the wheel is built in one and installed in the next, so the image holds no source and no compiler.
#   docker build -t fna-lightning .
#   docker run --rm -v "$PWD/runs:/home/fna/runs" fna-lightning fit --config reviews_fna.yaml
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . .
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${BASE}
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/constraints.txt
RUN python3 -m pip install --no-cache-dir -c /wheels/constraints.txt torch /wheels/*.whl \
    && rm -rf /wheels && useradd --create-home --uid 1000 fna && mkdir -p /home/fna/runs && chown -R fna /home/fna
USER fna
WORKDIR /home/fna
VOLUME ["/home/fna/runs"]
ENTRYPOINT ["fna-lightning"]
CMD ["--help"]
