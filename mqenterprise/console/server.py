"""The server of the console, which runs until it is stopped."""

from __future__ import annotations

import socket
import ssl
from ipaddress import ip_address
from typing import TYPE_CHECKING

import uvicorn

from mqenterprise.operations.errors import OperationsError
from qmnode.security.tls import load_certificate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from qmnode.console.app import Console


def listener(host: str, port: int, *, tls: bool) -> socket.socket:
    """A socket that listens. Raises :class:`OperationsError`, also for an open address without TLS."""
    try:
        loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        raise OperationsError(f"{host!r:.80} is no address: write ADDRESS:PORT, such as 127.0.0.1:8480") from None
    if not loopback and not tls:
        raise OperationsError(
            f"{host} is open to the network, and tokens would pass it in clear: give --certificate and --private-key, "
            "or listen on 127.0.0.1 behind a proxy that has TLS"
        )
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise OperationsError(f"{host}:{port} cannot be listened on: {error.strerror}") from None


async def serve(
    console: Console,
    bound: socket.socket,
    certificate: Path | None,
    private_key: Path | None,
    started: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM. Raises :class:`OperationsError` for a certificate that cannot be used."""
    config = uvicorn.Config(
        console,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=3,
        limit_concurrency=1000,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if private_key is None else str(private_key),
    )
    try:
        if certificate is not None:
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, private_key)
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise OperationsError(f"{certificate}, {private_key}: not a certificate and its key: {error}") from None
    try:
        started()
        await uvicorn.Server(config).serve([bound])
    finally:
        await console.close()
