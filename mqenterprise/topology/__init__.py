"""The declared enterprise: YAML to models, plan, apply, export, drift.

Everything up to :mod:`mqenterprise.topology.apply` is free of I/O: a declaration and a snapshot of the directory both
become tables of :class:`~mqenterprise.topology.normal_form.Resource`, and all later steps compare those tables.
LDAP is behind the port in :mod:`mqenterprise.topology.plan`.
"""
