"""Build the site of the workbook, offline, and check it.

    python scripts/gallery.py              # to build/gallery/html/index.html

Sphinx's warnings are errors. Then every link, anchor and asset of every page is looked up on disk,
and the sizes are held to their limits (scripts/gallery_check.py).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gallery_check import first_page_bytes, problems, site_bytes
from gallery_errors import GalleryError
from gallery_source import stage
from languages import LANGUAGES

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "gallery" / "html"


def build(root: Path, site: Path) -> None:
    """Build the site of the repository `root` into the folder `site`, which is replaced.

    Raises
    ------
    GalleryError
        Something in the notebooks or in `docs/` is wrong; Sphinx has said what. Or the folder
        cannot be replaced.
    """
    site.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gallery-", dir=site.parent) as work:
        whole = Path(work) / "html"
        for language in LANGUAGES:  # English first: it is the folder around
            source, made = Path(work) / language.code, Path(work) / f"html-{language.code}"
            stage(root, source, language)
            sphinx(root / "docs", source, made, language.code)
            made.rename(whole / language.folder)
        try:
            if site.exists():
                shutil.rmtree(site)
            whole.rename(site)
        except OSError as error:
            raise GalleryError(
                f"the site that is there cannot be replaced: {error}: remove {site} by hand"
            ) from error


def sphinx(configuration: Path, source: Path, made: Path, language: str) -> None:
    """Build one language's pages from `source` to `made`; `configuration` has conf.py."""
    doctrees = source.with_name(f"doctrees-{language}")
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(configuration)]
    options += ["-d", str(doctrees), "-D", f"language={language}"]
    # These paths are relative to conf.py, and the cards' pictures are only in `source`.
    options += ["-D", f"html_static_path={source / '_static'}"]
    # In a process of its own: autodoc imports the package, and Sphinx keeps much in globals.
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(made)]
    if subprocess.run(command, check=False).returncode:
        raise GalleryError("Sphinx had something to say (see above): its warnings are errors")
    (made / ".buildinfo").unlink(missing_ok=True)
    (made / "_sources").rmdir()  # empty, by conf.py's html_copy_source, and made all the same


def main() -> int:
    """Build, check, say where it is; return the exit code."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    start = time.monotonic()
    try:
        build(ROOT, SITE)
    except GalleryError as error:
        print(f"gallery: {error}", file=sys.stderr)
        return 1
    found = problems(SITE)
    for problem in found:
        print(f"gallery: {problem}", file=sys.stderr)
    print(
        f"{time.monotonic() - start:.0f} s, site {site_bytes(SITE) / 1e6:.1f} MB, "
        f"first page {first_page_bytes(SITE) / 1e3:.0f} kB: {SITE / 'index.html'}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
