# Codex: its platform package as it is, because the program looks for others beside itself, without what it needs to speak aloud.
ARG BASE
FROM ${BASE} AS fetched
LABEL curtainwall.recipe=codex
USER root
ARG PROCESSOR=x64
# An image of the user's may have an npm that does not go together with that of Debian.
RUN command -v npm >/dev/null || { apt-get update && apt-get install -y --no-install-recommends npm && rm -rf /var/lib/apt/lists/*; }
ARG VERSION=0.166.0
# What npm verified must be what was pinned here.
ARG DIGEST_x64=sha512-CxDm3+D1cpbGJeHrdzINoG+3wn9BVncP4qpZaaNYkxe8iPtRJOYyCJnnPoVjWRIBvI9vPKbRoifsMSA5xDaUpw==
ARG DIGEST_arm64=sha512-w0ScAsBr9aZKtIFrh6HN6KU2yjKKeSCzYfbb7DB0Ccj4BYPzeZtUeQprbycLCwuX3AFQdbdjapmLho2iot74jQ==
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "@openai/codex@${VERSION}-linux-${PROCESSOR}" \
    && eval "digest=\$DIGEST_${PROCESSOR}" \
    && for each in "${digest:-none}"; do \
        grep -qF "\"$each\"" /fetched/node_modules/.package-lock.json || { echo "this is not the package that the recipe pins" >&2; exit 1; }; \
    done \
    && mv /fetched/node_modules/@openai/codex/vendor/* /fetched/codex \
    && rm -rf /fetched/codex/codex-resources/voice \
    && mkdir /fetched/bin && ln -s ../lib/codex/bin/codex /fetched/bin/codex

FROM ${BASE}
LABEL curtainwall.recipe=codex
COPY --from=fetched /fetched/codex /usr/local/lib/codex
COPY --from=fetched /fetched/bin /usr/local/bin
