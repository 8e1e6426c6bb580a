"""Message security: signatures, encryption, key caches, sender identity, private keys. MS-MQQB 3.1.5.8.3 and 3.1.7.1.

Everything here computes; the clock is an argument and what the directory or the key store says is passed in.
"""
