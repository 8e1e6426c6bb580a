"""Servers found by DNS instead of configured."""
