"""The systems with recurrent encoders and decoders; it imports of `models` only the interface and the layers."""
