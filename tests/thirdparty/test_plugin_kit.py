"""`spine plugins new` starts a distribution that is green and installs; `spine plugins doctor` says what ails one."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spine.cli.plugins.new import KINDS

Run = Callable[..., subprocess.CompletedProcess[str]]
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


def spine(*words: str, folder: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a folder, with what is installed into `path`."""
    return python("-m", "spine", *words, folder=folder, path=path)


def python(*words: str, folder: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "", "HOME": str(folder), "PYTHONPATH": "" if path is None else str(path)}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_green_installed_and_well(kind: str, tmp_path: Path) -> None:
    """Its own tests pass once it is installed, it is listed as loaded, and the doctor finds nothing."""
    made = spine("plugins", "new", "big-shop", "--kind", kind, folder=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    project, site = tmp_path / "spine-big-shop", tmp_path / "site"
    subprocess.run([*PIP, *OFFLINE, "--target", str(site), str(project)], check=True, capture_output=True)
    tested = python("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=project, path=site)
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout
    assert "skipped" not in tested.stdout
    listed = spine("plugins", folder=tmp_path, path=site)
    (line,) = (line for line in listed.stdout.splitlines() if line.startswith("big_shop"))
    assert "loaded" in line
    examined = spine("plugins", "doctor", "big_shop", "--json", folder=tmp_path, path=site)
    (report,) = map(json.loads, examined.stdout.splitlines())
    assert (examined.returncode, {finding["state"] for finding in report["findings"]}) == (0, {"ok"})


def test_a_new_protocol_stands_servers_that_misbehave(tmp_path: Path) -> None:
    """Its conformance subject is there from the start; some of the cases, to see that it works."""
    assert spine("plugins", "new", "big-shop", "--kind", "protocol", folder=tmp_path).returncode == 0
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "eof")
    subject = ("--spine-conformance", "spine_big_shop.conformance:subject")
    tried = python(*words, *subject, folder=tmp_path / "spine-big-shop")
    assert tried.returncode == 0, tried.stdout
    assert "big_shop adapter 0.1.0" in tried.stdout


@pytest.mark.parametrize("name", ["Shop", "a_b", "-a", "a--b", "1a", "a/b", "..", "x" * 41, ""])
def test_what_is_no_name_for_a_plugin_is_refused(name: str, tmp_path: Path) -> None:
    refused = spine("plugins", "new", "--", name, folder=tmp_path)
    assert (refused.returncode, "is no name for a plugin" in refused.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "spine-shop" / "kept"
    kept.parent.mkdir()
    kept.write_text("mine")
    refused = spine("plugins", "new", "shop", folder=tmp_path)
    assert (refused.returncode, "nothing was changed" in refused.stderr) == (2, True)
    assert [path.name for path in kept.parent.iterdir()] == ["kept"]


def test_the_doctor_names_what_ails_a_plugin(run: Run) -> None:
    """A plugin that cannot be imported fails with the cause and its place; the others are examined all the same."""
    examined = run("-m", "spine", "plugins", "doctor", "--json")
    assert examined.returncode == 1
    reports = {report["name"]: report["findings"] for report in map(json.loads, examined.stdout.splitlines())}
    states = {name: {finding["check"]: finding["state"] for finding in found} for name, found in reports.items()}
    assert states["acme"] == dict.fromkeys(("installed", "needs", "loads", "import", "offers", "reaches"), "ok")
    assert states["broken"]["loads"] == "FAILED"
    (text,) = (finding["text"] for finding in reports["broken"] if finding["check"] == "loads")
    assert "spine_broken/__init__.py:" in text


def test_the_doctor_sees_a_missing_requirement_and_a_private_import(tmp_path: Path) -> None:
    """Both are said with what would mend them; a private import alone is a note and no failure."""
    site = tmp_path / "site"
    for name, requires, code in (
        ("lacks", "Requires-Dist: no-such-thing-anywhere>=3\nRequires-Dist: other; extra == 'x'\n", ""),
        ("digs", "", "from spine.log import SessionLog\n"),
    ):
        info = site / f"spine_{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: spine-{name}\nVersion: 1.0\n{requires}")
        (info / "entry_points.txt").write_text(f"[spine]\n{name} = spine_{name}\n")
        (site / f"spine_{name}.py").write_text(code)
    lacks = spine("plugins", "doctor", "lacks", folder=tmp_path, path=site)
    assert lacks.returncode == 1
    assert "no-such-thing-anywhere>=3 is not installed. Try: pip install 'no-such-thing-anywhere>=3'" in lacks.stdout
    digs = spine("plugins", "doctor", "digs", folder=tmp_path, path=site)
    assert digs.returncode == 0
    assert "imports spine.log (site/spine_digs.py:1), which may change without notice" in digs.stdout


def test_an_unknown_plugin_gets_the_nearest_name(run: Run) -> None:
    refused = run("-m", "spine", "plugins", "doctor", "acne")
    assert (refused.returncode, 'nearest is "acme"' in refused.stderr) == (2, True)


def installed(site: Path, name: str, code: str, requires: str = "", record: str = "") -> None:
    """A distribution with one module, as pip leaves it."""
    info = site / f"spine_{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: spine-{name}\nVersion: 1.0\n{requires}")
    (info / "entry_points.txt").write_text(f"[spine]\n{name} = spine_{name}\n")
    (info / "RECORD").write_text(record)
    package = site / f"spine_{name}"
    package.mkdir()
    (package / "__init__.py").write_text(code)


@pytest.mark.parametrize(
    ("bound", "is_met"),
    [(">=0.1", True), (">=0.1,<2", True), (">=99", False), ("<0.1", False), ("==0.1.0", True), ("!=0.1", False)],
)
def test_the_doctor_compares_versions(bound: str, is_met: bool, tmp_path: Path) -> None:
    """A plugin made for another version of the runtime is told so, with the version that is here."""
    site = tmp_path / "site"
    installed(site, "old", "", f"Requires-Dist: agent-spine{bound}\n")
    done = spine("plugins", "doctor", "old", folder=tmp_path, path=site)
    assert done.returncode == (0 if is_met else 1)
    assert (f"agent-spine{bound} is not met: 0.1.0 is installed" in done.stdout) is not is_met


def test_the_doctor_tells_a_misspelt_hook_and_the_nearest_one(tmp_path: Path) -> None:
    site = tmp_path / "site"
    code = "from spine.hooks import hookimpl\n@hookimpl\ndef spine_register_tool(registrar): pass\n"
    installed(site, "typo", code)
    done = spine("plugins", "doctor", "typo", folder=tmp_path, path=site)
    assert done.returncode == 1
    assert "spine_register_tool" in done.stdout
    assert "spine_register_tools" in done.stdout


def test_the_doctor_sees_what_stands_before_the_installed_module(tmp_path: Path) -> None:
    """A folder of the same name in the working folder is what Python imports."""
    site = tmp_path / "site"
    installed(site, "shop", "", record="spine_shop/__init__.py,,\n")
    assert "comes first" not in spine("plugins", "doctor", "shop", folder=tmp_path, path=site).stdout
    (tmp_path / "spine_shop").mkdir()
    (tmp_path / "spine_shop" / "__init__.py").write_text("")
    done = spine("plugins", "doctor", "shop", folder=tmp_path, path=site)
    assert "comes first on the path and is what is imported" in done.stdout
