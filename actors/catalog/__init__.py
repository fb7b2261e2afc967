"""The catalog: which topics and groups exist, and the actors that serve them."""
