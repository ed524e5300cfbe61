"""Cases about load: queues, deadlines, mixed and long runs, metrics; of the other cases imports lifecycle."""
