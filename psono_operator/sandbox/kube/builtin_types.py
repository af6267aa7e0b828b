"""The resource types a fresh sandbox serves, CRDs aside.

Enough for the operator, its tests and kubectl: what is not listed here does not exist. Pods,
Deployments, ServiceAccounts and the rest of the plain ones are stored and nothing acts on them.
"""

from __future__ import annotations

from psono_operator.sandbox.kube.admission.events import (
    EVENT_FIELDS,
    EVENTS_TABLE,
    NEW_EVENT_FIELDS,
    CoreEventStrategy,
    NewEventStrategy,
)
from psono_operator.sandbox.kube.admission.leases import LeaseStrategy
from psono_operator.sandbox.kube.admission.namespaces import NamespaceStrategy
from psono_operator.sandbox.kube.admission.secrets import ConfigMapStrategy, SecretStrategy
from psono_operator.sandbox.kube.crds import CrdStrategy
from psono_operator.sandbox.kube.registry import Column, ResourceType

CRD_GROUP = "apiextensions.k8s.io"
_AGE = Column("Age", "string", ".metadata.creationTimestamp", format="age")


def _columns(*columns: tuple[str, str, str]) -> tuple[Column, ...]:
    return (*(Column(name, kind, path) for name, kind, path in columns), _AGE)


BUILTIN_TYPES = (
    ResourceType(
        "",
        "v1",
        "namespaces",
        "Namespace",
        "namespace",
        namespaced=False,
        short_names=("ns",),
        status=True,
        label_name=True,
        columns=_columns(("Status", "string", ".status.phase")),
        selectable={"status.phase": ("status", "phase")},
        strategy=NamespaceStrategy(),
    ),
    ResourceType(
        "",
        "v1",
        "secrets",
        "Secret",
        "secret",
        columns=_columns(("Type", "string", ".type"), ("Data", "string", "len(.data)")),
        selectable={"type": ("type",)},
        strategy=SecretStrategy(),
    ),
    ResourceType(
        "",
        "v1",
        "configmaps",
        "ConfigMap",
        "configmap",
        short_names=("cm",),
        columns=_columns(("Data", "string", "len(.data)")),
        strategy=ConfigMapStrategy(),
    ),
    ResourceType(
        "",
        "v1",
        "events",
        "Event",
        "event",
        short_names=("ev",),
        create_on_update=True,
        columns=(
            Column("Last Seen", "string", ".lastTimestamp", format="age"),
            Column("Type", "string", ".type"),
            Column("Reason", "string", ".reason"),
            Column("Object", "string", "lower(.involvedObject.kind)/.involvedObject.name"),
            Column("Message", "string", ".message"),
        ),
        selectable=EVENT_FIELDS,
        strategy=CoreEventStrategy(),
        table=EVENTS_TABLE,
    ),
    ResourceType(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        "serviceaccount",
        short_names=("sa",),
        columns=(_AGE,),
    ),
    ResourceType(
        "",
        "v1",
        "pods",
        "Pod",
        "pod",
        short_names=("po",),
        categories=("all",),
        status=True,
        generations=True,
        columns=_columns(("Status", "string", ".status.phase")),
        selectable={"spec.nodeName": ("spec", "nodeName"), "status.phase": ("status", "phase")},
    ),
    ResourceType(
        "",
        "v1",
        "services",
        "Service",
        "service",
        short_names=("svc",),
        categories=("all",),
        status=True,
        columns=_columns(("Type", "string", ".spec.type")),
    ),
    ResourceType(
        "apps",
        "v1",
        "deployments",
        "Deployment",
        "deployment",
        short_names=("deploy",),
        categories=("all",),
        status=True,
        generations=True,
        columns=_columns(("Replicas", "string", ".spec.replicas")),
    ),
    ResourceType(
        "coordination.k8s.io",
        "v1",
        "leases",
        "Lease",
        "lease",
        unconditional_update=False,
        create_on_update=True,
        columns=_columns(("Holder", "string", ".spec.holderIdentity")),
        strategy=LeaseStrategy(),
    ),
    ResourceType(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        "event",
        short_names=("ev",),
        create_on_update=True,
        columns=(
            Column("Last Seen", "string", ".deprecatedLastTimestamp", format="age"),
            Column("Type", "string", ".type"),
            Column("Reason", "string", ".reason"),
            Column("Object", "string", "lower(.regarding.kind)/.regarding.name"),
            Column("Message", "string", ".note"),
        ),
        selectable=NEW_EVENT_FIELDS,
        strategy=NewEventStrategy(),
        table=EVENTS_TABLE,
    ),
    ResourceType(
        CRD_GROUP,
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "customresourcedefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        status=True,
        generations=True,
        columns=(Column("Created At", "date", ".metadata.creationTimestamp", format="plain"),),
        strategy=CrdStrategy(),
    ),
)
