"""Models from elsewhere: a catalogue, mirrors, the Hugging Face hub, archives. It imports lingon.bundle and what is
below; no host is called unless a user names what is there.
"""
