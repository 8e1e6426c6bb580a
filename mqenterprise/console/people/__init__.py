"""How the console identifies people: by an LDAP directory or an OpenID Connect provider; and proves them to nodes."""
