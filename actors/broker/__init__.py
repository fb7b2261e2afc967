"""The broker: actors over pure state machines. A partition each, the catalog, a coordinator per group, renewals."""
