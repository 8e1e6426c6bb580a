"""The commands of ``mqenterprise``, one module for each group of them."""
