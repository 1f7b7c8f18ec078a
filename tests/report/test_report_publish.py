"""A site appears whole or not at all, and never over something that is not ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trnbench.report import publish as publishing
from trnbench.report.publish import MANIFEST, PublishError, publish
from trnbench.status import UsageError

FIRST = {"index.html": b"first", "a/b.html": b"old"}
SECOND = {"index.html": b"second", "a/c.html": b"new"}


def content(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, manifests left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def test_a_new_site_replaces_the_former_one(tmp_path: Path) -> None:
    """Files of the former site that the new one lacks are gone; nothing is left beside it."""
    out = tmp_path / "deep" / "site"
    publish(out, FIRST, ["r1"])
    assert content(out) == FIRST
    publish(out, SECOND, ["r2"])
    assert content(out) == SECOND
    assert [path.name for path in out.parent.iterdir()] == ["site"]
    manifest = json.loads((out / MANIFEST).read_bytes())
    assert manifest["records"] == ["r2"]
    assert sorted(manifest["files"]) == sorted(SECOND)


def test_the_site_can_be_read_by_a_server(tmp_path: Path) -> None:
    """A temporary folder is private to its user; a published one follows the umask."""
    former = os.umask(0o022)
    try:
        publish(tmp_path / "site", FIRST, [])
    finally:
        os.umask(former)
    assert (tmp_path / "site").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("foreign", ["notes.txt", "folder/file", "index.html"])
def test_a_folder_that_is_no_site_stays_untouched(tmp_path: Path, foreign: str) -> None:
    """Whatever it holds: without a manifest it is not ours."""
    out = tmp_path / "home"
    (out / foreign).parent.mkdir(parents=True, exist_ok=True)
    (out / foreign).write_bytes(b"precious")
    with pytest.raises(UsageError, match=r"not a site of ours"):
        publish(out, FIRST, [])
    assert content(out) == {foreign: b"precious"}
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize("manifest", ["", "{}", '{"generator": "other", "files": {}}', "[1]", '{"files": 3}'])
def test_a_foreign_manifest_is_not_trusted(tmp_path: Path, manifest: str) -> None:
    """A file of the manifest's name with other content does not make a folder ours."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / MANIFEST).write_text(manifest, encoding="utf-8")
    with pytest.raises(UsageError, match="not a manifest of ours"):
        publish(tmp_path / "site", FIRST, [])


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A site needs a folder."""
    (tmp_path / "site").write_bytes(b"x")
    with pytest.raises(UsageError, match="is a file"):
        publish(tmp_path / "site", FIRST, [])


def test_files_of_others_move_along(tmp_path: Path) -> None:
    """Only what the manifest lists is replaced: a CNAME, a dot file and a site within the site survive."""
    out = tmp_path / "reports"
    publish(out / "local", {"index.html": b"inner"}, [])
    (out / ".gitkeep").write_bytes(b"")
    publish(out, FIRST, [])
    (out / "CNAME").write_bytes(b"example.org")
    publish(out, SECOND, [])
    kept = {"CNAME": b"example.org", ".gitkeep": b"", "local/index.html": b"inner"}
    assert content(out) == dict(sorted({**SECOND, **kept}.items()))
    publish(out / "local", {"index.html": b"inner again"}, [])
    assert content(out)["local/index.html"] == b"inner again"


def test_a_foreign_file_is_never_overwritten(tmp_path: Path) -> None:
    """A new page whose name somebody else's file has taken is an error, and both sites stay as they are."""
    out = tmp_path / "site"
    publish(out, FIRST, [])
    (out / "a" / "c.html").write_bytes(b"by hand")
    with pytest.raises(UsageError, match=r"a/c\.html"):
        publish(out, SECOND, [])
    assert content(out) == {**FIRST, "a/c.html": b"by hand"}


@pytest.mark.parametrize("moment", ["write", "swap"])
def test_a_failing_build_leaves_the_former_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """The disk fills while writing, or the last rename fails: the former site is there, whole, and nothing else."""
    out = tmp_path / "site"
    publish(out, FIRST, [])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if moment == "write":
        monkeypatch.setattr(Path, "write_bytes", full)
    else:
        rename = Path.rename

        def fail_for_the_new_site(self: Path, target: Path) -> Path:
            if self.name.endswith(".building"):
                full()
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", fail_for_the_new_site)
    with pytest.raises(PublishError, match="No space left"):
        publish(out, SECOND, [])
    monkeypatch.undo()
    assert content(out) == FIRST
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_linked_folder_is_followed(tmp_path: Path) -> None:
    """`out` may be a link to the folder that is served; the link stays a link."""
    publish(tmp_path / "real", FIRST, [])
    (tmp_path / "link").symlink_to("real")
    publish(tmp_path / "link", SECOND, [])
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "real") == SECOND


def test_manifest_names_what_a_site_is_made_of() -> None:
    """The manifest's name is what tells a site of ours; it must not change unnoticed."""
    assert publishing.MANIFEST == "trnbench-site.json"
