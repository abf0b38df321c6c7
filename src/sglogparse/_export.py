"""Frames written to files, piece by piece: a log may be larger than memory.

    pieces of a log --> frames of a piece --> their files (csv, ndjson), or parts that are joined (parquet)

Files are put in their places when all of them are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from sglogparse._errors import QueryError
from sglogparse._query import encoded, files_frame
from sglogparse._scan import scan_schemas
from sglogparse._stacks import merged_faults


def export(
    pieces: Iterable[Mapping[str, pl.DataFrame]],
    places: Mapping[str, Path],
    *,
    only_filled: bool,
    mask: Callable[[pl.DataFrame], pl.DataFrame] | None,
) -> dict[str, int]:
    """Write frames, by name, to their places; return how many rows each has.

    A piece has some of the frames. The ending of a file is its format: .parquet, .csv or .ndjson. With
    `only_filled`, frames without rows are not written, and nothing is of a log without lines. Raises
    QueryError for a file that cannot be written, or a column that a format cannot hold.
    """
    folder = next(iter(places.values())).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".sglogparse-") as work:
            files = {name: _File(Path(work), name, place) for name, place in places.items()}
            faults = [pl.DataFrame(schema=scan_schemas()["faults"])]
            for piece in pieces:
                for name, frame in piece.items():
                    if name == "faults":  # what repeats one of an earlier piece is counted there
                        faults.append(frame)
                    elif name in files and frame.height:
                        files[name].add(frame, mask)
            if "faults" in files:
                files["faults"].add(merged_faults(pl.concat(faults)), mask)
            if only_filled and not files["lines"].rows:
                return {}
            written = [file for file in files.values() if file.rows or not only_filled]
            for file in written:
                file.finish()
            for file in written:
                file.put()
            return {file.name: file.rows for file in written}
    except OSError as error:
        where = error.filename or folder
        raise QueryError(f"{where}: cannot be written: {error.strerror or error}") from None


class _File:
    """One frame on its way to its file."""

    def __init__(self, work: Path, name: str, place: Path) -> None:
        self.name = name
        self.rows = 0
        self._place, self._kind = place, place.suffix[1:]
        self._whole = work / f"{name}{place.suffix}"
        self._parts: list[Path] = []

    def add(self, frame: pl.DataFrame, mask: Callable[[pl.DataFrame], pl.DataFrame] | None = None) -> None:
        """Write some more rows, masked."""
        if mask is not None:
            frame = mask(frame)
        if self._kind == "parquet":
            self._parts.append(self._whole.with_suffix(f".{len(self._parts)}.parquet"))
            self._parts[-1].write_bytes(encoded(frame, self._kind))
        else:
            with self._whole.open("ab") as stream:
                stream.write(encoded(frame, self._kind, head=not self.rows))
        self.rows += frame.height

    def finish(self) -> None:
        """Make the file whole."""
        if not self.rows:
            self._whole.unlink(missing_ok=True)
            self._parts.clear()
            schema = scan_schemas().get(self.name)
            self.add(files_frame([]) if schema is None else pl.DataFrame(schema=schema))
        if len(self._parts) == 1:
            self._whole = self._parts[0]
        elif self._parts:
            pl.scan_parquet(self._parts, glob=False).sink_parquet(self._whole)

    def put(self) -> None:
        """Put the file in its place."""
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._whole.replace(self._place)
