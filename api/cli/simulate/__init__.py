"""`callboard simulate`: the command, its worker processes, and what it prints."""
