"""The declared enterprise: YAML to models, plan, apply, export, drift.

What lives here is pure until :mod:`mqenterprise.topology.apply`: a declaration and a snapshot of the directory are both
turned into :class:`~mqenterprise.topology.resources.Resource` tables, and everything that follows compares those.
LDAP is behind the port in :mod:`mqenterprise.topology.target`.
"""
