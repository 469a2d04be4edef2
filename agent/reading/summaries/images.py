"""PNG, JPEG and GIF: kind and size in pixels, from the header."""

from __future__ import annotations

from weaklink.agent.reading.summaries.source import Source

_PNG_COLORS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGB with alpha"}
_MOST_HEAD = 1 << 20


def png(source: Source) -> list[str]:
    """Width, height, depth and colours.

    Raises:
        ValueError: The header is damaged.
    """
    head = source.read(33)
    if len(head) < 33 or head[12:16] != b"IHDR":
        raise ValueError("its header is damaged")
    width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    color = _PNG_COLORS.get(head[25], "unknown colours")
    return [f"a PNG image, {width} × {height} pixels, {head[24]} bits, {color}"]


def gif(source: Source) -> list[str]:
    """Width and height."""
    head = source.read(10)
    if len(head) < 10:
        raise ValueError("its header is damaged")
    width, height = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return [f"a GIF image, {width} × {height} pixels"]


def jpeg(source: Source) -> list[str]:
    """Width, height and number of channels, from the first frame's header.

    Raises:
        ValueError: No frame begins in its first bytes.
    """
    head = source.read(_MOST_HEAD)
    position = 2
    while position + 9 < len(head) and head[position] == 0xFF:
        marker = head[position + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(head[position + at : position + at + 2], "big") for at in (5, 7))
            return [f"a JPEG image, {width} × {height} pixels, {head[position + 9]} channels"]
        position += 2 + max(int.from_bytes(head[position + 2 : position + 4], "big"), 2)
    raise ValueError("no frame begins in its first MiB")
