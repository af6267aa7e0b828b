"""Namespaces: the name label, the phase and the finalizer that keeps one while its content goes (H6)."""

from __future__ import annotations

from psono_operator.sandbox.kube.objects import Obj
from psono_operator.sandbox.kube.registry import PlainStrategy

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"


class NamespaceStrategy(PlainStrategy):
    """``v1`` Namespace. Its finalizers are in ``spec`` and belong to the namespace controller."""

    def prepare(self, new: Obj, old: Obj | None) -> None:
        new["metadata"]["labels"] = {
            **(new["metadata"].get("labels") or {}),
            NAME_LABEL: new["metadata"]["name"],
        }
        if old is None:
            new["spec"] = {"finalizers": [FINALIZER]}
            new["status"] = {"phase": "Active"}
        else:
            new["spec"], new["status"] = old.get("spec", {}), old.get("status", {})


def is_terminating(namespace: Obj) -> bool:
    """Whether new content is refused."""
    return bool(namespace["metadata"].get("deletionTimestamp"))
