# The service in a container; docs/operations/run-in-a-container.md explains how to run it, make container checks it.
# Debian's own Python gets its security updates with the other packages.
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv
WORKDIR /build
# The tools of the build are pinned, too. The environment of the service has no pip.
COPY constraints.txt constraints-build.txt ./
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/gleanery
COPY pyproject.toml README.md LICENSE ./
COPY src src
ARG EXTRAS=redis
ENV PIP_CONSTRAINT="/build/constraints.txt /build/constraints-build.txt"
RUN tools/bin/pip wheel --no-cache-dir --no-deps --wheel-dir dist . \
    && tools/bin/pip --python /opt/gleanery/bin/python install --no-cache-dir --only-binary :all: "$(ls dist/*.whl)[$EXTRAS]"

FROM debian:trixie-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --home-dir /data --shell /usr/sbin/nologin gleanery \
    && install -d -m 700 -o gleanery -g gleanery /data
COPY --from=build /opt/gleanery /opt/gleanery
ENV PATH=/opt/gleanery/bin:$PATH PYTHONDONTWRITEBYTECODE=1 GLEANERY_DATA=/data GLEANERY_HOST=0.0.0.0 GLEANERY_PORT=8000
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python3", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ['GLEANERY_PORT']), timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["gleanery"]
CMD ["serve"]
