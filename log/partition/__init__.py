"""The log of one partition: staging, recovery, healing, reads, retention."""
