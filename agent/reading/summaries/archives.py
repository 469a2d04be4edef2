"""Archives: what they list. Nothing is extracted."""

from __future__ import annotations

import tarfile
import zipfile

from weaklink.agent.reading.decoding import shown_name
from weaklink.agent.reading.summaries.source import BoundError, Source

_MOST_MEMBERS = 100
_MOST_COUNTED = 20_000
_MOST_DIRECTORY = 4 * 2**20  # bytes: some ten thousands of names


def opened_zip(source: Source) -> zipfile.ZipFile:
    """The archive, its directory read.

    Raises:
        BoundError: The directory is larger than that of any data set or checkpoint.
        zipfile.BadZipFile: It is damaged.
    """
    beyond = max(source.left - _MOST_DIRECTORY, 0)
    source.left -= beyond
    archive = zipfile.ZipFile(source)
    source.left += beyond
    return archive


def zip_listing(archive: zipfile.ZipFile) -> list[str]:
    """Names and sizes of a zip archive."""
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    lines = [f"a zip archive of {len(members)} files, {total} bytes when unpacked; listed, not unpacked"]
    lines += [f"{shown_name(member.filename[:300])}  {member.file_size} bytes" for member in members[:_MOST_MEMBERS]]
    if len(members) > _MOST_MEMBERS:
        lines.append(f"... and {len(members) - _MOST_MEMBERS} more")
    return lines


def tar_listing(source: Source) -> list[str]:
    """Names and sizes of an uncompressed tar archive.

    Raises:
        tarfile.TarError: It is none.
    """
    names: list[str] = []
    count = 0
    more = ""
    with tarfile.open(fileobj=source, mode="r:") as archive:
        try:
            for member in archive:
                count += 1
                if count <= _MOST_MEMBERS:
                    kind = f"{member.size} bytes" if member.isfile() else "a folder" if member.isdir() else "no file"
                    names.append(f"{shown_name(member.name[:300])}  {kind}")
                if count >= _MOST_COUNTED:
                    more = "at least "
                    break
        except BoundError:
            more = "at least "
    lines = [f"a tar archive of {more}{count} entries; listed, not unpacked", *names]
    return lines + ([f"... and {count - _MOST_MEMBERS} more"] if count > _MOST_MEMBERS else [])
