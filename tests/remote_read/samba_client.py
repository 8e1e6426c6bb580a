"""Samba's client asks a server three times whether it listens: run by Debian's Python, which has Samba's modules."""

import sys

from samba import credentials, param
from samba.dcerpc import mgmt


def main(name, address, port, options, mechanism, password, configuration):
    """Connect to ``address`` as the machine ``name``, and print what it answers."""
    loaded = param.LoadParm()
    loaded.load(configuration)
    loaded.set("realm", "LAB.TEST")
    loaded.set("workgroup", "LAB")
    user = credentials.Credentials()
    user.guess(loaded)
    user.set_username("administrator")
    user.set_password(password)
    user.set_domain("LAB")
    user.set_realm("LAB.TEST")
    states = {
        "kerberos": credentials.MUST_USE_KERBEROS,
        "ntlm": credentials.DONT_USE_KERBEROS,
        "either": credentials.AUTO_USE_KERBEROS,
    }
    user.set_kerberos_state(states[mechanism])
    binding = f"ncacn_ip_tcp:{address}[{port},{options},target_hostname={name},target_principal=host/{name}]"
    client = mgmt.mgmt(binding, loaded, user)
    for _ in range(3):
        print(client.is_server_listening())


if __name__ == "__main__":
    main(*sys.argv[1:])
