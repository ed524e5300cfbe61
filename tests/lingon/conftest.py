"""Properties are checked without a time limit for each example: what a busy machine does says nothing of them."""

from hypothesis import settings

settings.register_profile("lingon", deadline=None)
settings.load_profile("lingon")
