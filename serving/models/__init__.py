"""The models of a server: loaded, checked, published, replaced and supervised; it imports neither `auth` nor `rpc`."""
