"""Samba's client asks an endpoint mapper: run by Debian's Python, which has Samba's modules.

Samba checks that an array is as large as the call says, not only that it fits.
"""

import sys

from samba import credentials, param
from samba.dcerpc import epmapper, misc


def main(address, port, configuration, options):
    """Print what is listed all at once, what is listed one by one, and how many towers a map brings."""
    loaded = param.LoadParm()
    loaded.load(configuration)
    nobody = credentials.Credentials()
    nobody.set_anonymous()
    client = epmapper.epmapper(f"ncacn_ip_tcp:{address}[{port}{options}]", loaded, nobody)
    nothing = misc.policy_handle()
    _, entries, status = client.epm_Lookup(0, None, None, 0, nothing, 500)
    print(status, [entry.annotation for entry in entries])
    handle = nothing
    for _ in entries:
        handle, some, status = client.epm_Lookup(0, None, None, 0, handle, 1)
        print(status, [entry.annotation for entry in some], handle.uuid == nothing.uuid)
    for most in (1, 4, 100):
        _, towers, status = client.epm_Map(None, entries[0].tower, nothing, most)
        print(status, len(towers))


if __name__ == "__main__":
    main(*sys.argv[1:])
