"""The machine: CPU quota, memory, threads and event loop; it imports the standard library only."""
