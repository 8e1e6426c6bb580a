"""A client of someone else's making: impacket, which blocks, so it runs in threads."""

from __future__ import annotations

from typing import Any

from impacket.dcerpc.v5 import epm, transport
from impacket.dcerpc.v5.dtypes import NULL
from impacket.dcerpc.v5.rpcrt import RPC_C_AUTHN_GSS_NEGOTIATE, RPC_C_AUTHN_LEVEL_PKT_PRIVACY, RPC_C_AUTHN_WINNT

from tests.remote_read.foreign import CALLS, NDR, NDR64, QM2QM, QMCOMM

RECEIVE, PEEK = 1, 0x20


class Foreign:
    """A connection for each interface, as impacket makes them, or one for both."""

    def __init__(
        self,
        address: str,
        port: int,
        *,
        ndr64: bool = False,
        fragment: int = 0,
        user: str = "",
        password: str = "",
        domain: str = "",
        level: int = RPC_C_AUTHN_LEVEL_PKT_PRIVACY,
        kerberos: tuple[str, str] | None = None,
        one_connection: bool = False,
    ) -> None:
        """``kerberos``: the server's name, and the address of the domain controller: then that instead of NTLM.

        ``one_connection``: the second interface is added to the connection of the first with alter_context.
        """
        self.ndr64 = ndr64
        self._kerberos = kerberos
        self._connections = []
        self.qmcomm = self._connect(address, port, QMCOMM, fragment, user, password, domain, level)
        if one_connection:
            self.qm2qm = self.qmcomm.alter_ctx(QM2QM)
        else:
            self.qm2qm = self._connect(address, port, QM2QM, fragment, user, password, domain, level)
        self.handle = 0
        self.session = b""

    def _connect(
        self,
        address: str,
        port: int,
        interface: bytes,
        fragment: int,
        user: str,
        password: str,
        domain: str,
        level: int,
    ) -> Any:
        name = self._kerberos[0] if self._kerberos is not None else address
        factory = transport.DCERPCTransportFactory(rf"ncacn_ip_tcp:{name}[{port}]")
        factory.setRemoteHost(address)
        factory.set_connect_timeout(30)
        if user:
            factory.set_credentials(user, password, domain)
        if self._kerberos is not None:
            factory.set_kerberos(True, kdcHost=self._kerberos[1])
        dce = factory.get_dce_rpc()
        if user:
            dce.set_credentials(user, password, domain)
            dce.set_auth_type(RPC_C_AUTHN_WINNT if self._kerberos is None else RPC_C_AUTHN_GSS_NEGOTIATE)
            dce.set_auth_level(level)
        dce.connect()
        dce.bind(interface, transfer_syntax=NDR64 if self.ndr64 else NDR)
        if fragment:
            dce.set_max_fragment_size(fragment)
        self._connections.append(dce)
        return dce

    def call(self, name: str, **values: Any) -> Any:
        """Call a method: values by name, ``a.b`` for a member of a member."""
        kind, answer = CALLS[name]
        request = kind(isNDR64=self.ndr64)
        for path, value in values.items():
            *parts, last = path.split("__")
            target = request
            for part in parts:
                target = target[part]
            target[last] = value
        dce = self.qmcomm if name.startswith("R_QM") else self.qm2qm
        dce.call(request.opnum, request)
        return answer(dce.recv(), isNDR64=self.ndr64)

    def open(self, name: str, access: int = RECEIVE) -> int:
        """R_QMOpenRemoteQueue and RemoteQMOpenQueue; the status of the first that fails."""
        opened = self.call(
            "R_QMOpenRemoteQueue",
            pQueueFormat__m_qft=3,
            pQueueFormat__union__tag=3,
            pQueueFormat__union__m_pDirectID=name + "\0",
            dwDesiredAccess=access,
            pLicGuid=bytes(16),
        )
        if opened["ErrorCode"]:
            return int(opened["ErrorCode"])
        self.handle = opened["phQueue"]
        session = self.call(
            "RemoteQMOpenQueue",
            pLicGuid=bytes(16),
            hQueue=self.handle,
            pQueue=opened["dwpQueue"],
            dwpContext=opened["pdwContext"],
        )
        self.session = session["pphContext"]["uuid"]
        return int(session["ErrorCode"])

    def start(self, action: int = 0, timeout: int = 0, request: int = 1, cursor: int = 0) -> Any:
        """RemoteQMStartReceive2."""
        desc = "lpRemoteReadDesc2__pRemoteReadDesc__"
        values = {
            "hRemoteQueue": self.handle,
            "dwQueue": self.handle,
            "ulAction": action,
            "ulTimeout": timeout,
            "dwRequestID": request,
            "hCursor": cursor,
            "eAckNack": 0,
            "lpBuffer": NULL,
        }
        return self.call("RemoteQMStartReceive2", **{desc + name: value for name, value in values.items()})

    def end(self, started: Any, acknowledge: bool = True) -> int:
        """RemoteQMEndReceive."""
        ended = self.call(
            "RemoteQMEndReceive", pphContext__uuid=started["pphContext"]["uuid"], dwAck=2 if acknowledge else 1
        )
        return int(ended["ErrorCode"])

    def close(self) -> None:
        """End the connections."""
        for dce in self._connections:
            dce.disconnect()


def packet_of(started: Any) -> bytes:
    """The packet that a read brought."""
    return b"".join(started["lpRemoteReadDesc2"]["pRemoteReadDesc"]["lpBuffer"])


def mapped_port(address: str, endpoint_mapper_port: int, interface: bytes) -> int:
    """The port that the endpoint mapper says."""
    dce = transport.DCERPCTransportFactory(rf"ncacn_ip_tcp:{address}[{endpoint_mapper_port}]").get_dce_rpc()
    dce.connect()
    try:
        binding = epm.hept_map(address, interface, protocol="ncacn_ip_tcp", dce=dce)
    finally:
        dce.disconnect()
    return int(binding.rpartition("[")[2].rstrip("]"))
