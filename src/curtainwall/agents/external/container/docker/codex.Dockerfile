# Codex: its platform package as it is, because the program looks for others beside itself, without what it needs to speak aloud.
ARG BASE
FROM ${BASE} AS fetched
USER root
ARG PROCESSOR=x64
RUN apt-get update && apt-get install -y --no-install-recommends npm
ARG VERSION=0.166.0
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "@openai/codex@${VERSION}-linux-${PROCESSOR}" \
    && mv /fetched/node_modules/@openai/codex/vendor/* /fetched/codex \
    && rm -rf /fetched/codex/codex-resources/voice \
    && mkdir /fetched/bin && ln -s ../lib/codex/bin/codex /fetched/bin/codex

FROM ${BASE}
COPY --from=fetched /fetched/codex /usr/local/lib/codex
COPY --from=fetched /fetched/bin /usr/local/bin
