"""Replay: which documents a run read, without their text; the index, its proof, and what can be rebuilt from it.

``index`` builds and reads replay indices, ``validate`` checks them, ``join`` finds their documents in public text again,
``streams`` makes token streams of what was found, and ``trace`` says what a step saw and when a document was seen.
"""
