"""`curtainwall web`: print links that sign people in to the web pages, and sign people out."""

from typing import Annotated

import typer

from curtainwall.cli.screen import Output, OutputOption, hint, show, show_json
from curtainwall.config.loader import load_config
from curtainwall.host.home import find_home
from curtainwall.model import Broken
from curtainwall.serve.web.sign_in import sign_in_link, sign_ins_of

app = typer.Typer()


@app.command()
def link(
    user: Annotated[str | None, typer.Option(metavar="NAME", help="for whom; left out, the first of `web.operators`")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print a link that signs somebody in once, within ten minutes. It is as good as a key: give it to nobody else.

    There is a link only while `curtainwall serve` holds the port that it leads to.
    """
    home = find_home()
    home.prepare()
    config = load_config(home.config)
    if not config.web.enabled:
        raise Broken("the pages are not served: the configuration has `web.enabled = false`")
    url = sign_in_link(home, config, user)
    if output is Output.JSON:
        show_json({"url": url, "served": True})
    else:
        show(url)
    hint("it works once and for ten minutes, while this `serve` runs")


@app.command("sign-out")
def sign_out(
    user: Annotated[str | None, typer.Argument(metavar="[NAME]", help="whose sign-ins end; left out, everybody's")] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """End sign-ins in every browser, and links that were not used yet."""
    home = find_home()
    home.prepare()
    ended = sign_ins_of(home, load_config(home.config)).end_all(user)
    show_json({"ended": ended}) if output is Output.JSON else show(f"{ended} sign-ins ended")
