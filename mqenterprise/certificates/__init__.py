"""Certificates that users sign messages with, as the directory has them."""
