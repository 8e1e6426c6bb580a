"""The table of the commands of ``qmnode``. Each command is in a file of its own beside this one."""

from typing import Final

import typer

from qmnode.commands.registry import Row, VersionOption, command_table

COMMANDS: Final = {
    "init": Row("qmnode.commands.node:init_app", "Make a node: a configuration and a message store."),
    "run": Row("qmnode.commands.run:app", "Run the node until it is stopped."),
    "status": Row("qmnode.commands.status:app", "Show the state of the running node."),
    "connect": Row("qmnode.commands.node:connect_app", "Exchange messages with other machines again."),
    "disconnect": Row("qmnode.commands.node:disconnect_app", "Exchange no messages with other machines."),
    "queue": Row("qmnode.commands.queue:app", "Create, find, change and delete queues."),
    "apply": Row("qmnode.commands.apply:apply_app", "Make the document of a machine true."),
    "document": Row("qmnode.commands.apply:document_app", "Print the document of the machine."),
    "send": Row("qmnode.commands.send:app", "Send messages."),
    "receive": Row("qmnode.commands.receive:receive_app", "Take messages out of a queue."),
    "peek": Row("qmnode.commands.receive:peek_app", "Show messages without removing them."),
    "move": Row("qmnode.commands.receive:move_app", "Move messages to a subqueue or back."),
    "message": Row("qmnode.commands.message:app", "Find, move, copy, delete, return and replay messages."),
    "trace": Row("qmnode.commands.trace:app", "Show where a message is, why it waits, and whether it passed."),
    "job": Row("qmnode.commands.job:app", "List, pause, resume, cancel and undo jobs over messages."),
    "top": Row("qmnode.commands.top:app", "Show the fullest queues, and how fast they grow."),
    "journal": Row("qmnode.commands.receive:journal_app", "Show copies of messages that were received or sent."),
    "dead-letter": Row("qmnode.commands.dead_letter:app", "List, retry and export dead letters."),
    "transaction": Row("qmnode.commands.transaction:app", "List the transactions that have not ended."),
    "sequence": Row("qmnode.commands.sequence:app", "List and reset sequences of transactional messages."),
    "backup": Row("qmnode.commands.node:backup_app", "Copy the store of the running node."),
    "restore": Row("qmnode.commands.node:restore_app", "Put a backup where a node will start on it."),
    "verify": Row("qmnode.commands.node:verify_app", "Check the store of a stopped node, or a backup."),
    "salvage": Row("qmnode.commands.node:salvage_app", "Bring every whole message out of a damaged store."),
    "decode": Row("qmnode.commands.decode:app", "Explain the packets in a capture, a hex dump or plain bytes."),
}

app = typer.Typer(cls=command_table(COMMANDS), no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def qmnode(version: VersionOption = False) -> None:
    """A Message Queuing (MSMQ) queue manager node.

    Exit codes: 0 done; 1 the operation failed, with an MQ_ERROR code; 2 wrong usage; 3 the node cannot be reached;
    4 timed out waiting for a message.
    """
