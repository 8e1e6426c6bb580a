"""What was taken in silence and had no effect, or failed later, is refused at once with what to do."""

import os
import re
import resource
from pathlib import Path

import pytest

from qmnode.administration.queue_names import queue_name
from qmnode.errors import MessageQueuingError
from qmnode.settings.node import read_settings
from qmnode.structures.names import QueueNameError, parse_format_name
from qmnode.unix_sockets import bind_unix_socket
from tests.commands.conftest import Command
from tests.lab.cases import cases
from tests.lab.nodes import START, NodeProcess, launch, running_node


@pytest.mark.parametrize(
    "name",
    [
        "my host!",
        "two words",
        "x" * 64,
        r"ho\st",
        "a:b",
        "-?",
        "tab\there",
        "localhost",
        "LocalHost.",
        "127.0.0.1",
        "10.1",
    ],
)
def test_a_name_that_no_computer_can_have_is_refused_by_init_and_in_settings(
    command: Command, tmp_path: Path, name: str
) -> None:
    answer = command("init", "--config", tmp_path / "n.yaml", "--data", tmp_path / "d", "--computer-name", name)
    assert answer.code == 2 and "no name of a computer" in answer.err and not list(tmp_path.iterdir())
    (tmp_path / "node.yaml").write_text(f"computer_name: {name!r}\n".replace("\\\\", "\\"))
    with pytest.raises(Exception, match="no name of a computer"):
        read_settings(tmp_path / "node.yaml")


def test_init_refuses_a_folder_in_which_no_socket_fits(command: Command, tmp_path: Path) -> None:
    far = tmp_path / ("f" * 100)
    answer = command("init", "--config", tmp_path / "n.yaml", "--data", tmp_path / "d", "--run-directory", far)
    assert answer.code != 0 and "at most 107" in answer.err and not list(tmp_path.iterdir())


def test_a_folder_for_sockets_that_cannot_be_made_is_named_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MessageQueuingError, match=r"local\.socket"):
        bind_unix_socket(tmp_path / "file" / "run" / "node.sock", 0o600)


@pytest.mark.parametrize("inside", ["copy", "deep/er/copy", "."])
def test_a_backup_into_the_folder_of_the_store_is_refused(
    node: NodeProcess, command: Command, tmp_path: Path, inside: str
) -> None:
    link = tmp_path / "link"
    link.symlink_to(node.folder / "store")
    for folder in (node.folder / "store", link):
        answer = command("backup", folder / inside)
        assert answer.code == 1 and "folder of the store itself" in answer.err
    assert not (node.folder / "store" / "copy").exists()


@pytest.mark.parametrize("name", ["orders", r".\orders", "Orders 2"])
def test_no_public_queue_is_made_by_a_node_that_has_no_directory(
    node: NodeProcess, command: Command, name: str
) -> None:
    answer = command("queue", "create", name, "--public")
    assert answer.code == 1 and "MQ_ERROR_NO_DS" in answer.err and "private$" in answer.err
    assert "orders" not in command("queue", "list", "--kind", "public").out.lower()


@pytest.mark.parametrize("who", ["S-1-5-21-1-2-3-1104", "S-1-5-21-9-9-9-512", "users", "system", "S-1-5-21-7-7-7-513"])
def test_a_denial_that_matches_nobody_is_refused(queue: str, command: Command, who: str) -> None:
    before = command("queue", "acl", "show", queue).out
    answer = command("queue", "acl", "deny", queue, who, "send-message")
    assert answer.code == 1 and "MQ_ERROR_ILLEGAL_USER" in answer.err and "deny nobody" in answer.err
    assert command("queue", "acl", "show", queue).out == before
    assert command("queue", "acl", "remove", queue, who, "send-message").code == 0


def test_a_trace_without_a_queue_for_its_reports_is_refused_and_nothing_sent(queue: str, command: Command) -> None:
    answer = command("send", queue, "x", "--trace")
    assert answer.code == 2 and "give --report-queue, or set tracing.report_queue in node.yaml" in answer.err
    assert command("queue", "show", queue, "--json").json["message_count"] == 0


def test_the_removal_of_an_entry_that_is_not_there_says_so(queue: str, command: Command) -> None:
    words = ("queue", "acl", "remove", queue, "S-1-5-21-4-5-6-7", "send-message")
    answer = command(*words)
    assert answer.code == 0 and "nothing was removed" in answer.err
    assert "nothing was removed" in command(*words, "--json").err
    command("queue", "acl", "allow", *words[3:])
    assert "nothing was removed" not in command(*words).err


@pytest.mark.parametrize("name", [".", r"private$\."])
def test_no_queue_is_named_like_the_computer(queue: str, command: Command, name: str) -> None:
    answer = command("queue", "create", name)
    assert answer.code == 1 and "names no queue" in answer.err
    assert "\\." not in command("queue", "list").out


def test_a_denial_for_authenticated_users_says_whom_it_does_not_reach(queue: str, command: Command) -> None:
    answer = command("queue", "acl", "deny", queue, "authenticated-users", "send-message")
    assert answer.code == 0 and "their senders are anonymous" in answer.err
    assert command("send", queue, "x").code == 1, "a local application is an authenticated user"


@cases(
    ("address", "name"),
    [
        (r"FormatName:DIRECT=OS:host\private$\orders", r"DIRECT=OS:host\private$\orders"),
        (r"formatname:PUBLIC=4d36e96e-e325-11ce-bfc1-08002be10318", "PUBLIC=4d36e96e-e325-11ce-bfc1-08002be10318"),
        ("net.msmq://host.example/private/orders", r"DIRECT=OS:host.example\private$\orders"),
        ("NET.MSMQ://localhost/private/orders", r"DIRECT=OS:.\private$\orders"),
        ("net.msmq://host/orders", r"DIRECT=OS:host\orders"),
        (r"msmq.formatname:DIRECT=TCP:10.0.0.1\private$\orders", r"DIRECT=TCP:10.0.0.1\private$\orders"),
        ("msmq://host/orders", r"DIRECT=OS:host\private$\orders"),
        (r"msmq:DIRECT=OS:host\private$\orders", r"DIRECT=OS:host\private$\orders"),
        ("msmq:orders", r".\private$\orders"),
        ("msmq:host/private$/orders", r"DIRECT=OS:host\private$\orders"),
        ("MSMQ:/localhost/orders", r"DIRECT=OS:.\private$\orders"),
        ("msmq:host.example/private/two%20words/", r"DIRECT=OS:host.example\private$\two words"),
        (r" FormatName: DIRECT=OS:host\private$\orders ", r"DIRECT=OS:host\private$\orders"),
        ("net.msmq://host/private/two%20words", r"DIRECT=OS:host\private$\two words"),
        ("net.msmq://[2001:db8::1]/private/orders", r"DIRECT=TCP:2001:db8::1\private$\orders"),
        (r"os:host\private$\orders", r"DIRECT=os:host\private$\orders"),
        (r"TCP:198.51.100.1\private$\orders", r"DIRECT=TCP:198.51.100.1\private$\orders"),
        ("https://host/msmq/private$/orders", "DIRECT=https://host/msmq/private$/orders"),
        ("formatname:multicast=224.0.0.1:8001", "multicast=224.0.0.1:8001"),
        ("224.0.0.1:8001", "MULTICAST=224.0.0.1:8001"),
        ("orders", r".\private$\orders"),
    ],
)
def test_addresses_of_other_systems_are_understood(address: str, name: str) -> None:
    assert queue_name(address) == name


@pytest.mark.parametrize("who", ["uid:4000000001", "gid:4000000002"])
@pytest.mark.parametrize("change", ["allow", "deny"])
def test_a_number_without_an_account_is_named_in_an_access_list(
    queue: str, command: Command, change: str, who: str
) -> None:
    answer = command("queue", "acl", change, queue, who, "send-message")
    assert answer.code == 0 and f"this machine has no account {who}: only programs" in answer.err
    assert "no account" not in command("queue", "acl", "remove", queue, who, "full-control").err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("send", "orders", "x", "--hash", "1"), "'--hash': '1' is not one of 'sha512'"),
        (("send", "orders", "x", "--hash", "sha3"), "'--hash': 'sha3' is not one of"),
        (("queue", "create", "orders", "--privacy-level", "full"), "'--privacy-level': 'full' is not one of 'none'"),
        (("queue", "list", "--kind", "remote"), "'--kind': 'remote' is not one of"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(
    command: Command, arguments: tuple[str, ...], sentence: str
) -> None:
    answer = command(*arguments)
    assert answer.code == 2 and f"invalid value for {sentence}" in answer.err


@pytest.mark.parametrize("address", ["orders@host", "orders@host.example", "two words@HOST"])
def test_a_queue_at_a_machine_is_answered_with_the_name_to_use(
    node: NodeProcess, command: Command, address: str
) -> None:
    name, _, machine = address.partition("@")
    answer = command("send", address, "x")
    assert (
        answer.code == 1
        and rf"{address} of NServiceBus and Rebus is DIRECT=OS:{machine}\private$\{name})" in answer.err
    )


@pytest.mark.parametrize("address", [r"FormatName:DIRECT=OS:h\q", "net.msmq://h/private/q", "msmq://h/q"])
def test_programs_get_the_name_to_use_for_an_address_of_another_system(address: str) -> None:
    with pytest.raises(QueueNameError, match=r"DIRECT=OS:h\\"):
        parse_format_name(address)


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("net.msmq://host:1801/private/orders", r"no port: use DIRECT=OS:host\private$\orders"),
        ("MSMQ://host:1801/orders", r"no port: use DIRECT=OS:host\private$\orders"),
        (r"direct=os:host:1801\private$\orders", r"no port: use direct=os:host\private$\orders"),
        ("http://host/orders", "no address with http://"),
        ("rabbitmq://host/orders", "no address with rabbitmq://"),
        ("net.msmq://host", "no address with net.msmq://"),
    ],
)
def test_an_address_that_is_none_of_a_queue_is_refused_at_every_door(
    node: NodeProcess, command: Command, address: str, hint: str
) -> None:
    for arguments in (("send", address, "x"), ("queue", "create", address), ("peek", address)):
        answer = command(*arguments)
        assert answer.code != 0 and hint in " ".join(answer.err.split()), arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "QUEUE", "x", "--label", "a", "--label", "b"),
        ("send", "QUEUE", "x", "--priority", "1", "--priority=1"),
        ("peek", "QUEUE", "-n", "1", "--count", "2"),
    ],
)
def test_an_option_that_is_given_twice_is_refused(queue: str, command: Command, arguments: tuple[str, ...]) -> None:
    answer = command(*(queue if one == "QUEUE" else one for one in arguments))
    assert answer.code == 2 and "given more than once" in answer.err
    assert command("peek", queue, "--json").documents == []


@pytest.mark.parametrize(
    "address",
    [
        r"direct=os:beta\private$\in",
        r"DIRECT=OS:beta\public",
        r"DIRECT=TCP:192.0.2.9\private$\in",
        "net.msmq://beta/private/in",
        r"DIRECT=OS:beta\private$\in,DIRECT=OS:gamma\private$\in",
    ],
)
def test_what_cannot_be_encrypted_is_refused_before_it_is_sent(
    node: NodeProcess, command: Command, address: str
) -> None:
    answer = command("send", address, "secret", "--encrypted")
    assert answer.code == 1 and "does not say whose public key to use" in answer.err
    waiting = command("queue", "list", "--kind", "outgoing", "--json").json["queues"]
    assert [queue for queue in waiting if queue["message_count"]] == []


@pytest.mark.parametrize("form", ["nservicebus", "rebus"])
@pytest.mark.parametrize("headers", [("A=1", "A=2"), ("A=1", "B=1", "A=1"), ("A=", "A=x")])
def test_a_header_that_is_given_twice_is_refused(
    queue: str, command: Command, form: str, headers: tuple[str, ...]
) -> None:
    given = [part for text in headers for part in ("--header", text)]
    answer = command("send", queue, "{}", "--format", form, *given)
    assert answer.code == 2 and "'A' is given more than once" in answer.err
    assert command("message", "edit", queue, "0x1", *given).code == 2
    assert command("peek", queue, "--json").documents == []


def test_a_message_sent_to_an_address_of_wcf_arrives(node: NodeProcess, queue: str, command: Command) -> None:
    assert command("send", f"net.msmq://localhost/private/{queue}", "from WCF").code == 0
    assert command("receive", queue).out == "from WCF\n"


def test_a_node_that_may_open_few_files_says_what_it_needs(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    config = tmp_path / "node.yaml"
    config.write_text(f"data: {tmp_path / 'store'}\n")
    log = tmp_path / "log"
    assert launch(config, log, os.environ, preexec_fn=few).wait(START) == 2
    assert "64 files" in (said := log.read_text()) and "ulimit -n" in said
    assert "Traceback" not in said and not (tmp_path / "store").exists()


def test_a_restored_node_says_what_it_does_not_know(node: NodeProcess, command: Command, tmp_path: Path) -> None:
    backup, folder = tmp_path / "backup", tmp_path / "again"
    assert command("status", "--json").json["warnings"] == []
    assert command("backup", backup).code == 0
    restored = command("restore", backup, "--data", folder / "store")
    assert restored.code == 0 and "are there again" in restored.err
    for _ in range(2):  # a restart does not forget it
        with running_node(folder) as again:
            (warning,) = command("status", "--socket", again.socket, "--json").json["warnings"]
        assert warning.startswith("store: it is a copy") and "may be received again" in warning
        assert re.search(r"numbers \d+ to \d+ may exist elsewhere", warning)
