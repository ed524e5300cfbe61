"""The client's side of every call, without sockets and threads; imports the values of the client alone."""
