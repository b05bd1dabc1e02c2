"""How a container, a pod or a job is given a vendor's cards."""

from __future__ import annotations

from dataclasses import dataclass

from heavylift.facts.schema import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class CardAccess(Rule):
    """One vendor's way. `devices` are nodes of the host, `groups` own them (names on the host),
    `security_options` Docker's. `docker_gpus`: Docker has a flag of its own for these cards;
    `compose_driver` is that flag's name in compose. The resources are names in a cluster.
    """

    vendor: str
    kubernetes_resource: str
    slurm_resource: str
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    security_options: tuple[str, ...] = ()
    docker_gpus: bool = False
    compose_driver: str | None = None
