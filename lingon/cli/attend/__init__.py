"""The verb `attend`, which shows attention; may import lingon.cli, lingon.client, rich, and matplotlib for images."""
