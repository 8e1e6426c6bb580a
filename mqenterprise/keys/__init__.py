"""Key pairs of the enterprise's nodes: published, rotated without losing a message, kept in a file or in AWS."""
