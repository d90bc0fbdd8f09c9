# OpenCode: one native file out of its platform package.
ARG BASE
FROM ${BASE} AS fetched
LABEL curtainwall.recipe=opencode
USER root
ARG PROCESSOR=x64
# An image of the user's may have an npm that does not go together with that of Debian.
RUN command -v npm >/dev/null || { apt-get update && apt-get install -y --no-install-recommends npm && rm -rf /var/lib/apt/lists/*; }
ARG VERSION=1.18.33
# What npm verified must be what was pinned here.
ARG DIGEST_x64=sha512-q/t/3p2CTxOT9y2kvjesb/LZab2+1eqlhhWA02Be6mjTtmYtNBcBsrI5yDo4Fw7ZSPBW2oyMIGMNRqiKQjiAWw==
RUN npm install --prefix /fetched --ignore-scripts --no-audit --no-fund "opencode-linux-${PROCESSOR}@${VERSION}" \
    && eval "digest=\$DIGEST_${PROCESSOR}" \
    && for each in "${digest:-none}"; do \
        grep -qF "\"$each\"" /fetched/node_modules/.package-lock.json || { echo "this is not the package that the recipe pins" >&2; exit 1; }; \
    done \
    && mv "/fetched/node_modules/opencode-linux-${PROCESSOR}/bin/opencode" /fetched/opencode

FROM ${BASE}
LABEL curtainwall.recipe=opencode
COPY --from=fetched /fetched/opencode /usr/local/bin/opencode
