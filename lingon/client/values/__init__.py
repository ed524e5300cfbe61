"""What goes into the calls of a client and what comes out: plain values, and their protobuf messages."""
