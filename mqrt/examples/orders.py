"""Message Queuing from Python by ctypes, as other languages with a foreign function interface call it.

``MQRT=libmqrt.so.1 python3 orders.py``. Programs in Python have ``qmnode.connect()``, which needs none of this.
"""

import ctypes
import os

SEND_ACCESS, RECEIVE_ACCESS = 2, 1
ACTION_RECEIVE = 0
PROPID_M_BODY, PROPID_M_BODY_SIZE, PROPID_Q_PATHNAME = 9, 10, 103
VT_NULL, VT_UI4, VT_LPWSTR, VT_VECTOR_UI1 = 1, 19, 31, 0x1011
MQ_ERROR_QUEUE_EXISTS, MQ_ERROR_IO_TIMEOUT = 0xC00E0005, 0xC00E001B

mqrt = ctypes.CDLL(os.environ.get("MQRT", "libmqrt.so.1"))
mqrt.mqrt_last_sentence.restype = ctypes.c_char_p


class Bytes(ctypes.Structure):
    """A counted array of bytes: CAUB."""

    _fields_ = (("count", ctypes.c_uint32), ("data", ctypes.c_void_p))


class Value(ctypes.Union):
    """The value of a property, by its type."""

    _fields_ = (("number", ctypes.c_uint32), ("text", ctypes.c_void_p), ("bytes", Bytes))


class Variant(ctypes.Structure):
    """A property's type and value: MQPROPVARIANT."""

    _fields_ = (("vt", ctypes.c_uint16), ("reserved", ctypes.c_uint16 * 3), ("value", Value))


class Properties(ctypes.Structure):
    """MQMSGPROPS and MQQUEUEPROPS."""

    _fields_ = (
        ("count", ctypes.c_uint32),
        ("ids", ctypes.POINTER(ctypes.c_uint32)),
        ("values", ctypes.POINTER(Variant)),
        ("statuses", ctypes.c_void_p),
    )


def wide(text: str) -> ctypes.Array[ctypes.c_char]:
    """A text as WCHARs, which have 16 bits."""
    return ctypes.create_string_buffer(text.encode("utf-16-le") + b"\0")


def properties(*pairs: tuple[int, Variant]) -> Properties:
    """A list of properties by their identifiers."""
    ids = (ctypes.c_uint32 * len(pairs))(*(number for number, _ in pairs))
    values = (Variant * len(pairs))(*(value for _, value in pairs))
    return Properties(len(pairs), ids, values, None)


def check(code: int, *expected: int) -> int:
    """The result of a call; OSError with the node's sentence if it failed."""
    code &= 0xFFFFFFFF
    if code & 0x80000000 and code not in expected:
        raise OSError(f"0x{code:08X}: {mqrt.mqrt_last_sentence().decode()}")
    return code


def main() -> None:
    """Create a queue, send to it, and receive what is there."""
    path, name = wide(r".\private$\orders-in-python"), ctypes.create_string_buffer(512)
    length = ctypes.c_uint32(256)
    created = properties((PROPID_Q_PATHNAME, Variant(VT_LPWSTR, value=Value(text=ctypes.addressof(path)))))
    code = check(mqrt.MQCreateQueue(None, ctypes.byref(created), name, ctypes.byref(length)), MQ_ERROR_QUEUE_EXISTS)
    if code == MQ_ERROR_QUEUE_EXISTS:
        length = ctypes.c_uint32(256)
        check(mqrt.MQPathNameToFormatName(path, name, ctypes.byref(length)))
    out, back = ctypes.c_void_p(), ctypes.c_void_p()
    check(mqrt.MQOpenQueue(name, SEND_ACCESS, 0, ctypes.byref(out)))
    check(mqrt.MQOpenQueue(name, RECEIVE_ACCESS, 0, ctypes.byref(back)))
    order = ctypes.create_string_buffer(b"seven screws", 12)
    sent = properties((PROPID_M_BODY, Variant(VT_VECTOR_UI1, value=Value(bytes=Bytes(12, ctypes.addressof(order))))))
    check(mqrt.MQSendMessage(out, ctypes.byref(sent), None))
    room = ctypes.create_string_buffer(1000)
    got = properties(
        (PROPID_M_BODY, Variant(VT_VECTOR_UI1, value=Value(bytes=Bytes(1000, ctypes.addressof(room))))),
        (PROPID_M_BODY_SIZE, Variant(VT_NULL)),
    )
    receive = (back, 0, ACTION_RECEIVE, ctypes.byref(got), None, None, None, None)
    while check(mqrt.MQReceiveMessage(*receive), MQ_ERROR_IO_TIMEOUT) != MQ_ERROR_IO_TIMEOUT:
        print("received:", room.raw[: got.values[1].value.number].decode())
    check(mqrt.MQCloseQueue(out))
    check(mqrt.MQCloseQueue(back))
    check(mqrt.MQDeleteQueue(name))


main()
