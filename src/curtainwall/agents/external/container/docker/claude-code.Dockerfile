# Claude Code: one native file out of its platform package.
ARG BASE
FROM ${BASE} AS fetched
USER root
ARG PROCESSOR=x64
RUN apt-get update && apt-get install -y --no-install-recommends npm
ARG VERSION=2.1.325
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "@anthropic-ai/claude-code-linux-${PROCESSOR}@${VERSION}" \
    && mv "/fetched/node_modules/@anthropic-ai/claude-code-linux-${PROCESSOR}/claude" /fetched/claude

FROM ${BASE}
COPY --from=fetched /fetched/claude /usr/local/bin/claude
