"""Folders that commands write to."""

from pathlib import Path


def check_is_or_may_be_folder(folder: Path) -> None:
    """Refuse a folder that can't be made, as a file stands in its path.

    Parameters
    ----------
    folder : Path
        It need not exist.

    Raises
    ------
    NotADirectoryError
        Naming the file.
    """
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if nearest.exists() and not nearest.is_dir():
        raise NotADirectoryError(f"there can be no folder {folder}: {nearest} is a file; choose another folder")
