"""The directory of the enterprise over LDAP: OpenLDAP and Active Directory behind one interface.

:class:`~mqenterprise.directory.open_directory.EnterpriseDirectory` opens one and has a repository for each kind of
object.
"""
