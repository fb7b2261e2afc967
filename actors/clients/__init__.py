"""How partitions are used, by handles and by other actors: their addresses, credit, and questions to them."""
