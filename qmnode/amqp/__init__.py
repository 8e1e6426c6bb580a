"""The AMQP 1.0 door: programs in any language send to and receive from the queues of the node (docs/amqp.md)."""
