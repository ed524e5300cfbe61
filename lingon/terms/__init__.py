"""Terms: how words and phrases are translated, where they are in a text, and the files that hold them.

It imports only the modules at the root of `lingon`.
"""
