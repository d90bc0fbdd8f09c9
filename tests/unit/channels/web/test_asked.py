"""An ask as the pages show it: who may answer it stands on its card, as things are now."""

from collections.abc import Iterator

import pytest

from curtainwall.model import SYSTEM, AddRoute, Route
from tests.support.covers import covers
from tests.support.webs import CONFIG, Visit, Web, told, web_at


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with web_at(tmp_path_factory.mktemp("asked").resolve(), f'{CONFIG}[channels.desk]\noperators = ["<b>carl</b>"]\n') as made:
        yield made


@covers("approvals.who-may-answer")
def test_a_card_says_who_may_answer_it_to_whoever_looks_and_says_it_anew_where_that_changes(web: Web, ann: Visit, uma: Visit) -> None:
    session = web.session()
    approval = web.an_ask(session)
    here = "may be answered on web by ann or olga, and at its machine"
    for page in ("/", f"/asks/{session}/{approval}"):
        assert here in ann.get(page).text
        assert here in uma.get(page).text, "whoever may only look learns whom to ask"
    with ann.listen("on=asks") as stream:
        heard = told(stream.iter_lines())
        next(data for _, data, _ in heard if here in data)
        web.do(web.served.wired.registry.send(session, AddRoute(by=SYSTEM, route=Route(channel="desk", reference="front"))))
        everybody = "may be answered on desk by &lt;b&gt;carl&lt;/b&gt;, on web by ann or olga, and at its machine"
        next(data for _, data, _ in heard if everybody in data)
    assert everybody in ann.get("/").text
