"""The engine that containers of these tests run in."""

from tests.integration.container.conftest import docker_engine

__all__ = ["docker_engine"]
