# What every agent's image builds on: a slim Debian, pinned by `agents build --pull`, or the user's own image (`[agents.NAME] image`), and what each agent needs.
# Nothing of a session is in it: keys, certificates and settings come with the mounts.
ARG FROM=debian:bookworm-slim
FROM ${FROM}
LABEL curtainwall.recipe=base
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl git less procps ripgrep socat \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /workspace /etc/curtainwall /run/curtainwall /home/agent \
    && (getent passwd 1000 >/dev/null || printf 'agent:x:1000:1000::/home/agent:/bin/bash\n' >>/etc/passwd) \
    && (getent group 1000 >/dev/null || printf 'agent:x:1000:\n' >>/etc/group)
WORKDIR /workspace
USER 1000:1000
