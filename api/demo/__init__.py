"""The demo: its acts, what their processes write down, and the account of it all."""
