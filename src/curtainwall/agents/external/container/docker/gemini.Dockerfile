# Gemini CLI: one bundle, and a node that is newer than Debian's.
ARG BASE
FROM ${BASE} AS fetched
USER root
ARG PROCESSOR=x64
RUN apt-get update && apt-get install -y --no-install-recommends npm
ARG VERSION=0.61.0
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "@google/gemini-cli@${VERSION}" "node-linux-${PROCESSOR}@22.23.3" \
    && mv "/fetched/node_modules/node-linux-${PROCESSOR}/bin/node" /fetched/node \
    && printf '#!/bin/sh\nexec node /usr/local/lib/gemini/bundle/gemini.js "$@"\n' >/fetched/gemini \
    && chmod 755 /fetched/gemini

FROM ${BASE}
COPY --from=fetched /fetched/node /usr/local/bin/node
COPY --from=fetched /fetched/node_modules/@google/gemini-cli /usr/local/lib/gemini
COPY --from=fetched /fetched/gemini /usr/local/bin/gemini
