"""Consumer groups: their coordinators, and the renewal of their members' leases."""
