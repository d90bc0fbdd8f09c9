# Codex: one static file out of its platform package.
ARG BASE
FROM ${BASE} AS fetched
USER root
ARG PROCESSOR=x64
RUN apt-get update && apt-get install -y --no-install-recommends npm
ARG VERSION=0.166.0
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "@openai/codex@${VERSION}-linux-${PROCESSOR}" \
    && mv /fetched/node_modules/@openai/codex/vendor/*/bin/codex /fetched/codex

FROM ${BASE}
COPY --from=fetched /fetched/codex /usr/local/bin/codex
