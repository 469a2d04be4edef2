"""The instruments that can be asked for by name. No torch here."""

INSTRUMENTS: dict[str, object] = {}
