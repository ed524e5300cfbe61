"""Translation memories: segments and their translations, built into folders that are looked up without being loaded.

Imports `documents` for the parser of XML, and the layers below it.
"""
