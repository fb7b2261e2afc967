"""Workloads: raw traffic becomes a recording, a recording a profile, and a profile a larger recording. Needs Spark.

`profile_format` (a profile's JSON) and `report` (its page) need no Spark; all else imports it when a job runs.
"""

from __future__ import annotations
