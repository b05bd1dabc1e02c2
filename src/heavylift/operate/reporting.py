"""Keeping a stage's report where a go-live report finds it; and a deployment by its name or URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from heavylift import __version__
from heavylift.errors import HeavyliftError
from heavylift.gateway import told
from heavylift.gateway.store import default_folder
from heavylift.operate import recipes, secret_file, truth
from heavylift.operate.golive.subject import plain_url
from heavylift.recipe.engines import embedded
from heavylift.records.deployment import DeploymentStatus
from heavylift.state import paths, reports
from heavylift.state.deployments import deployments_path, open_deployments
from heavylift.state.reports import KeptReport
from heavylift.wire.client import is_address


@dataclass(frozen=True, kw_only=True, slots=True)
class Reached:
    """A deployment that answers: where, with which key, as which release."""

    name: str
    url: str
    model: str
    release: int
    key: str | None = field(repr=False)


def reach(name: str) -> Reached | None:
    """The deployment of that name as it answers now; None when there is none of that name.

    Raises OPS009 for one that does not serve.
    """
    if not deployments_path().is_file():
        return None
    with open_deployments(deployments_path()) as store:
        deployment = store.deployment(name)
        if deployment is None:
            return None
        status = truth.status(store, deployment)
    if not status.ready or status.url is None:
        raise HeavyliftError(
            "OPS009",
            {"name": name, "phase": str(status.phase)},
            hint_command=f"heavylift restart {name}",
        )
    return Reached(
        name=name,
        url=status.url,
        model=deployment.model,
        release=status.release,
        key=_key(name),
    )


def keep(kind: str, report: Any, *, url: str | None = None, name: str | None = None) -> Path:
    """Keep a report, with the deployment that answers at `url` or is called `name`; its file.

    Raises `OSError` and what opening the store raises.
    """
    record = KeptReport(
        kind=kind,
        at=_now(),
        heavylift_version=__version__,
        report=reports.encoded(report),
        url=plain_url(url) if url is not None and _is_server(url) else None,
    )
    status = _status(record.url, name)
    if status is not None:
        record = _of(record, status)
    return reports.keep(record)


def keep_of_recipe(kind: str, report: Any, folder: Path) -> Path:
    """Keep a report on a recipe that may not run yet. Raises as `keep`."""
    return reports.keep(
        KeptReport(
            kind=kind,
            at=_now(),
            heavylift_version=__version__,
            report=reports.encoded(report),
            recipe=recipes.read(folder).digest,
        )
    )


def _is_server(url: str) -> bool:
    """False for a file of answers, which stands in the place of an address."""
    return "://" in url or is_address(url)


def _now() -> str:
    """Now, fine enough to tell which of two reports came later."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _of(record: KeptReport, status: DeploymentStatus) -> KeptReport:
    folder = recipes.release_dir(status.name, status.release)
    recipe = recipes.read(folder) if (folder / recipes.LAUNCH).is_file() else None
    plan = None if recipe is None else recipe.plan
    return msgspec.structs.replace(
        record,
        deployment=status.name,
        release=status.release,
        recipe=None if recipe is None else recipe.digest,
        revision=None if recipe is None else recipe.spec.model_revision,
        layout=None if plan is None else plan.layout.label,
    )


def _status(url: str | None, name: str | None) -> DeploymentStatus | None:
    """The deployment of that name, or that answers at an address or behind the gateway there."""
    if not deployments_path().is_file():
        return None
    with open_deployments(deployments_path()) as store:
        found = truth.report(store).deployments
    if name is not None:
        return next((each for each in found if each.name == name), None)
    if url is None:
        return None
    addresses = {plain_url(url)}
    front = told.kept(default_folder())
    if front is not None and plain_url(front.url) in addresses:
        addresses |= {plain_url(each) for each in front.upstreams}
    for each in found:
        if each.url is not None and plain_url(each.url) in addresses:
            return each
    return None


def _key(name: str) -> str | None:
    """The key that the deployment's clients need, where it made one up."""
    path = paths.deployment_dir(name) / secret_file.FILE
    return secret_file.read(path).get(embedded.KEY_SECRET) if path.is_file() else None
