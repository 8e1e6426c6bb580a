"""Error codes, MS-MQMQ 2.4, and the exception that carries them."""

import pytest

from qmnode.errors import MessageQueuingError
from qmnode.structures.error_codes import ErrorCode


def test_every_row_of_the_table_is_there():
    assert len(ErrorCode.__members__) == len(set(ErrorCode)) == 145
    assert sum(code.name.startswith("MQ_INFORMATION_") for code in ErrorCode) == 9


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("MQ_INFORMATION_PROPERTY", 0x400E0001, "One or more of the properties passed resulted in a warning"),
        ("MQ_ERROR", 0xC00E0001, "Generic error code."),
        ("MQ_ERROR_QUEUE_NOT_FOUND", 0xC00E0003, "The queue does not exist or you do not have sufficient permissions"),
        ("MQ_ERROR_ILLEGAL_FORMATNAME", 0xC00E001E, "The format name specified is invalid."),
        ("MQ_ERROR_ILLEGAL_MQQMPROPS", 0xC00E0041, "Either the pointer to the MQQMPROPS structure"),
        ("MQ_CORRUPTED_QUEUE_WAS_DELETED", 0xC00E0068, "The corresponding file for the designated queue"),
        ("MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION", 0xC00E009C, "The message is currently being processed"),
        ("MQDS_UNKNOWN_SOURCE", 0xC00E0504, "The specified MSMQ Directory Service server"),
    ],
)
def test_value_name_and_text(name, value, text):
    code = ErrorCode(value)

    assert code.name == name
    assert code.text.startswith(text)


def test_every_text_is_a_clean_sentence():
    for code in ErrorCode:
        assert code.text.endswith(".")
        assert code.text == " ".join(code.text.split())
        assert not set(code.text) & set("*[]\\#<>")


def test_the_exception_carries_code_name_and_sentence():
    error = MessageQueuingError(ErrorCode.MQ_ERROR_QUEUE_NOT_FOUND, "create it first")

    assert (error.code, error.name, error.sentence) == (
        0xC00E0003,
        "MQ_ERROR_QUEUE_NOT_FOUND",
        "create it first",
    )
    assert str(error) == "MQ_ERROR_QUEUE_NOT_FOUND (0xC00E0003): create it first"


def test_without_a_sentence_the_specification_speaks():
    assert MessageQueuingError(ErrorCode.MQ_ERROR_ACCESS_DENIED).sentence == "Access is denied."
