"""One served house for the tests of a module; each test makes sessions of its own in it."""

from collections.abc import Iterator

import pytest

from tests.support.webs import Visit, Web, web_at


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_at(tmp_path_factory.mktemp("web").resolve()) as made:
        yield made


@pytest.fixture(scope="module")
def ann(web: Web) -> Visit:
    """Return the browser of an operator."""
    return web.visit("ann")


@pytest.fixture(scope="module")
def uma(web: Web) -> Visit:
    """Return the browser of somebody who may only talk."""
    return web.visit("uma")
