"""Packs Argos packages."""

import zipfile
from pathlib import Path

METADATA = '{"from_code": "ar", "to_code": "en", "from_name": "Arabic", "package_version": "1.0"}'


def pack(package: Path, top: str = "translate-ar_en/", method: int = zipfile.ZIP_DEFLATED) -> Path:
    archive_path = package.parent / "package.argosmodel"
    with zipfile.ZipFile(archive_path, "w", method) as archive:
        for file in sorted(package.rglob("*")):
            archive.write(file, top + file.relative_to(package).as_posix())
    return archive_path
