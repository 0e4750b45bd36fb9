# strandline with scans on one machine:
#
#   docker build -t strandline .
#   docker run --rm -v "$PWD:/repo:ro" -v strandline-state:/state strandline scan /repo --state /state
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 scanner \
    && install --directory --owner scanner /state
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir "$(echo /wheels/strandline-*.whl)[scan]" \
    && rm -rf /wheels
USER scanner
WORKDIR /repo
VOLUME /state
ENTRYPOINT ["strandline"]
CMD ["scan", "/repo", "--state", "/state"]
