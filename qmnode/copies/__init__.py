"""A copy of the store elsewhere: log and large messages, shipped while the node runs, and restored to a moment."""
