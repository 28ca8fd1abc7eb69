# docker build -t folkmoot . && docker run --rm -v "$PWD:/work" folkmoot run STUDY
FROM python:3.12-slim AS build
WORKDIR /source
RUN pip install --no-cache-dir "uv>=0.13"
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY packaging packaging
COPY src src
COPY examples examples
COPY config config
# The versions of the lock, so that two images of one commit hold the same packages.
RUN uv sync --frozen --no-dev --no-editable --extra pdf

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 folkmoot && mkdir /work && chown folkmoot /work
COPY --from=build /source/.venv /source/.venv
ENV PATH=/source/.venv/bin:$PATH PYTHONUNBUFFERED=1
USER folkmoot
WORKDIR /work
ENTRYPOINT ["folkmoot"]
CMD ["--help"]
