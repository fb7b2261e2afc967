"""What holds for all tests: Hypothesis measures no time, since a busy machine is no failure."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("callboard", deadline=None, print_blob=True)
hypothesis.settings.load_profile("callboard")
