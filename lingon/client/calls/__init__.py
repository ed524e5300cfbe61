"""The calls of the clients and of the models in this process, whatever answers them; imports the protocol."""
