"""The dead-letter router: takes dead letters from where they are kept to the topics that groups name for them."""
