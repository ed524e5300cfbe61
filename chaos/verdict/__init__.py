"""What a run has shown, history and metrics, and what must hold for it. Imports nothing else of chaos."""
