"""Every short history of a log, with power lost at every verb and every way of losing what was not synced."""
