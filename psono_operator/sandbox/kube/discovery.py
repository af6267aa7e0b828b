"""What the server says about itself: versions, groups, resources (rule Q12).

Plain and aggregated discovery, both made from the registry. kubectl asks for the aggregated form first.
"""

from __future__ import annotations

from psono_operator.sandbox.kube.objects import Obj
from psono_operator.sandbox.kube.registry import Registry, ResourceType

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_STATUS_VERBS = ["get", "patch", "update"]

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "sandbox",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "sandbox/any",
}


def verbs(resource: ResourceType) -> list[str]:
    """The verbs a resource answers; namespaces cannot be deleted as a collection."""
    return [verb for verb in _VERBS if resource.plural != "namespaces" or verb != "deletecollection"]


def legacy_versions(address: str) -> Obj:
    """``/api``."""
    servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}


def _group(name: str, versions: list[str]) -> Obj:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def groups(registry: Registry) -> Obj:
    """``/apis``."""
    found = [_group(name, versions) for name, versions in registry.versions().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def group(registry: Registry, name: str) -> Obj | None:
    """``/apis/<group>``, None when there is no such group."""
    versions = registry.versions().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions and name else None


def resources(registry: Registry, name: str, version: str) -> Obj | None:
    """``/api/v1`` and ``/apis/<group>/<version>``, None when there is no such version."""
    listed: list[Obj] = []
    for each in _of(registry, name, version):
        entry: Obj = {"name": each.plural, "singularName": each.singular, "namespaced": each.namespaced}
        entry |= {"kind": each.kind, "verbs": verbs(each)}
        if each.short_names:
            entry["shortNames"] = list(each.short_names)
        if each.categories:
            entry["categories"] = list(each.categories)
        listed.append(entry)
        if each.status:
            status = {"name": f"{each.plural}/status", "singularName": "", "namespaced": each.namespaced}
            listed.append({**status, "kind": each.kind, "verbs": _STATUS_VERBS})
    if not listed:
        return None
    group_version = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def aggregated(registry: Registry, *, legacy: bool) -> Obj:
    """``/api`` or ``/apis`` as an APIGroupDiscoveryList."""
    items = []
    for name, versions in registry.versions().items():
        if bool(name) == legacy:
            continue
        listed = [
            {
                "version": version,
                "resources": [_described(each) for each in _of(registry, name, version)],
                "freshness": "Current",
            }
            for version in versions
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _described(each: ResourceType) -> Obj:
    kind = {"group": each.group, "version": each.version, "kind": each.kind}
    entry: Obj = {
        "resource": each.plural,
        "responseKind": kind,
        "scope": "Namespaced" if each.namespaced else "Cluster",
        "singularResource": each.singular,
        "verbs": verbs(each),
    }
    if each.short_names:
        entry["shortNames"] = list(each.short_names)
    if each.categories:
        entry["categories"] = list(each.categories)
    if each.status:
        entry["subresources"] = [{"subresource": "status", "responseKind": kind, "verbs": _STATUS_VERBS}]
    return entry


def _of(registry: Registry, name: str, version: str) -> list[ResourceType]:
    return [each for each in registry.all() if (each.group, each.version) == (name, version)]
