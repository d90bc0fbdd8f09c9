# Gemini CLI: one bundle, and a node that is newer than Debian's.
ARG BASE
FROM ${BASE} AS fetched
LABEL curtainwall.recipe=gemini
USER root
ARG PROCESSOR=x64
# An image of the user's may have an npm that does not go together with that of Debian.
RUN command -v npm >/dev/null || { apt-get update && apt-get install -y --no-install-recommends npm && rm -rf /var/lib/apt/lists/*; }
ARG VERSION=0.61.0
# What npm verified must be what was pinned here.
ARG DIGEST_x64=sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng==
ARG DIGEST_arm64=sha512-l3DAHZreylo+p9QXDtsOrjG2JXJqVzYXnAGmIQNOUNARcMppTO2cmewVQP+36tjJnSE+dzpMNtgW+c3oiDvXtA==
ARG DIGEST_GEMINI=sha512-dbQ9A0qBtFJNi6XBkHvfZ6Azpn6PNgH/P8h2MZ67RLlX8hSAVjup39CRWqdRxZv7YXIuhrFaytr8y0jKnkoxnQ==
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "@google/gemini-cli@${VERSION}" "node-linux-${PROCESSOR}@22.23.3" \
    && eval "digest=\$DIGEST_${PROCESSOR}" \
    && for each in "${digest:-none}" "$DIGEST_GEMINI"; do \
        grep -qF "\"$each\"" /fetched/node_modules/.package-lock.json || { echo "this is not the package that the recipe pins" >&2; exit 1; }; \
    done \
    && mv "/fetched/node_modules/node-linux-${PROCESSOR}/bin/node" /fetched/node \
    && printf '#!/bin/sh\nexec node /usr/local/lib/gemini/bundle/gemini.js "$@"\n' >/fetched/gemini \
    && chmod 755 /fetched/gemini

FROM ${BASE}
LABEL curtainwall.recipe=gemini
COPY --from=fetched /fetched/node /usr/local/bin/node
COPY --from=fetched /fetched/node_modules/@google/gemini-cli /usr/local/lib/gemini
COPY --from=fetched /fetched/gemini /usr/local/bin/gemini
