"""Objects of a real directory that the product creates by declarations alone: sites, routing links and users."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar

from mqenterprise.directory.gateway import MARK
from mqenterprise.directory.mapping import ENTERPRISE, ROUTING_LINK, SITE, USER, ObjectMapping, Refers
from qmnode.directory.port import Enterprise, RoutingLink, Site, User
from qmnode.objects.rows import Changes

if TYPE_CHECKING:
    from collections.abc import Collection

    from mqenterprise.directory.service import EnterpriseDirectory

Made = TypeVar("Made", Site, RoutingLink, User)
