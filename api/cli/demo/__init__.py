"""`callboard demo`: its acts, what their processes print, and the account of it all."""
