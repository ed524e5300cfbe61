"""The training text of a student: a teacher's translations. It imports `lingon.cli` and below, no PyTorch."""
