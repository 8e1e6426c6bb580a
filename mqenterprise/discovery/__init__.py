"""Find servers by DNS instead of configuring them."""
