"""How commands reach a hub: the one that was chosen, and a word on what it is asked."""

from __future__ import annotations

from contextlib import AbstractContextManager
from urllib.parse import urlsplit

import click

from heavylift.checkpoint.hub_settings import HubId, HubSettings, from_environment
from heavylift.cli.text import text
from heavylift.facts.catalog import Catalog
from heavylift.inspecting import HubReader, Reach
from heavylift.records.sink import Sink


def chosen_hub(catalog: Catalog, name: str | None) -> HubSettings:
    """The hub of that id, or the environment's. A usage error for one that nobody knows."""
    hubs = catalog.hubs()
    known = ", ".join(hub.id for hub in hubs)
    if name is not None and name not in {hub.id for hub in hubs}:
        raise click.UsageError(text("usage.hub", name=name, known=known))
    return from_environment(hubs, name)


def reach_hub(catalog: Catalog, name: str | None, out: Sink | None = None) -> Reach:
    """Opens a model on the hub; says first what is asked of whom."""
    if name is not None:
        chosen_hub(catalog, name)

    def reach(model: HubId) -> AbstractContextManager[HubReader]:
        from heavylift.checkpoint.hub import HubFiles

        hub = chosen_hub(catalog, name)
        if out is not None:
            say_what_is_asked(hub, model, out)
        return HubFiles(hub, model)

    return reach


def say_what_is_asked(hub: HubSettings, model: HubId, out: Sink, what: str = "hub.asking") -> None:
    """Who is asked for what, and whether a token goes along. Nothing when nobody will be asked."""
    if hub.offline is not None:
        return
    host = urlsplit(hub.endpoint).netloc
    if hub.token is None:
        with_token = text("hub.without_token")
    elif hub.may_send_token:
        with_token = text("hub.with_token", place=hub.token_from)
    else:
        with_token = text("hub.token_kept")
    out.note(what, id=model.id, host=host, token=with_token)
