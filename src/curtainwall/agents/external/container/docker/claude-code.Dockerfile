# Claude Code: one native file out of its platform package.
ARG BASE
FROM ${BASE} AS fetched
LABEL curtainwall.recipe=claude-code
USER root
ARG PROCESSOR=x64
# An image of the user's may have an npm that does not go together with that of Debian.
RUN command -v npm >/dev/null || { apt-get update && apt-get install -y --no-install-recommends npm && rm -rf /var/lib/apt/lists/*; }
ARG VERSION=2.1.325
# What npm verified must be what was pinned here.
ARG DIGEST_x64=sha512-BqZzMvP/zgLLL34S+7OzbG+cyoFp7gwWHU5koVwsyMlTAz+0zZAmbY+UkzvtN2RXxp6AcMenbYIjQJxoXfUY3w==
ARG DIGEST_arm64=sha512-NCvQcOxr685Y4mkYUjQT8l/Ouzw0k2xWloWeyzfsUtWiOedHosPkaW6XCSpzAl1dMuvDNBF97qpWgVDrSdK2Vw==
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "@anthropic-ai/claude-code-linux-${PROCESSOR}@${VERSION}" \
    && eval "digest=\$DIGEST_${PROCESSOR}" \
    && for each in "${digest:-none}"; do \
        grep -qF "\"$each\"" /fetched/node_modules/.package-lock.json || { echo "this is not the package that the recipe pins" >&2; exit 1; }; \
    done \
    && mv "/fetched/node_modules/@anthropic-ai/claude-code-linux-${PROCESSOR}/claude" /fetched/claude

FROM ${BASE}
LABEL curtainwall.recipe=claude-code
COPY --from=fetched /fetched/claude /usr/local/bin/claude
