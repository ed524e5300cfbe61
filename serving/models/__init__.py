"""The models of a server: loaded, checked, published, replaced and supervised. Imports neither `auth` nor `rpc`."""
