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
        if out is not None and hub.offline is None:
            key = "hub.asking" if hub.token is None else "hub.asking_with_token"
            out.note(key, id=model.id, host=urlsplit(hub.endpoint).netloc, token=hub.token_from)
            if hub.token is not None and not hub.may_send_token:
                out.note("hub.token_kept", host=urlsplit(hub.endpoint).netloc)
        return HubFiles(hub, model)

    return reach
