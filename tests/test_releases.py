"""The releases: each is in the changelog, made from a commit that is behind this one, and says its version."""

import re

import pytest

from tests.releases import RELEASES, ROOT, Release, git

HEADING = re.compile(r"^## \[?([0-9][^\s\]]*)\]? - (\S+)$", re.MULTILINE)


def test_the_changelog_names_the_same_releases():
    headings = HEADING.findall((ROOT / "CHANGELOG.md").read_text())
    assert headings == [(release.version, release.date) for release in RELEASES]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_a_release_is_behind_this_commit_and_says_its_version(release: Release):
    release.require_commit()
    assert git("merge-base", "--is-ancestor", release.commit, "HEAD").returncode == 0
    assert f'__version__ = "{release.version}"' in release.text("src/oarlock/__init__.py")
