r"""What the studies play on."""
