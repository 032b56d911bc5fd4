"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure of a property; a found example is printed so that anyone can replay it.
settings.register_profile("fairlead", deadline=None, print_blob=True)
settings.load_profile("fairlead")
