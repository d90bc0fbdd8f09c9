# OpenCode: one native file out of its platform package.
ARG BASE
FROM ${BASE} AS fetched
USER root
ARG PROCESSOR=x64
RUN apt-get update && apt-get install -y --no-install-recommends npm
ARG VERSION=1.18.33
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "opencode-linux-${PROCESSOR}@${VERSION}" \
    && mv "/fetched/node_modules/opencode-linux-${PROCESSOR}/bin/opencode" /fetched/opencode

FROM ${BASE}
COPY --from=fetched /fetched/opencode /usr/local/bin/opencode
