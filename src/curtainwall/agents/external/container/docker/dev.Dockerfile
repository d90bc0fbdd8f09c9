# For development: compilers, Python, Node and ssh on top of the base. Agents are layered on it with `image = "dev"` or `--image dev`.
ARG BASE
FROM ${BASE}
LABEL curtainwall.recipe=dev
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        build-essential cmake gdb make pkg-config \
        python3 python3-dev python3-pip python3-venv \
        nodejs npm \
        openssh-client \
        file jq patch unzip xz-utils zip \
    && rm -rf /var/lib/apt/lists/*
USER 1000:1000
