"""Builds the images of deploy/ and keeps them in build/images, for `make images-test`.

    python scripts/images.py cpu gpu

It needs Linux, root and the Debian packages in PACKAGES; no Docker engine and no service. podman builds and runs with
runc. Everything is in build/images: the images, their containers and networks, and podman's configuration. A later run
continues from what is there.

The base image comes from its registry with `--base registry`. By default a stand-in takes its place under the same
name: a tree of the same Debian release, made by debootstrap, with Debian's Python of the same minor version and pip
where the real image has it. Its packages are Debian's, so its Python may have another patch version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "images"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
TARGETS = ("cpu", "gpu")
PACKAGES = {
    "podman": "podman",
    "conmon": "conmon",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "catatonit": "/usr/libexec/podman/catatonit",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "golang-github-containernetworking-plugin-dnsname": "/usr/lib/cni/dnsname",
    "dnsmasq-base": "dnsmasq",
    "iptables": "iptables",
}
"""The Debian packages, each with a command or a file that it installs."""
IN_BASE = "ca-certificates,netbase,tzdata,python3,python3-venv,python3-pip-whl,python3-setuptools-whl"
MIRROR = "http://deb.debian.org/debian"
ULIMIT = 4096  # files and processes; podman's own defaults are above those that a root without CAP_SYS_RESOURCE may set
CERTIFICATES = Path("/etc/ssl/certs")  # of this machine: pip in a build trusts what pip here trusts


class ImageError(Exception):
    """The images cannot be built; the message is one line."""


def tag(target: str) -> str:
    """The name and tag of an image, as compose.yaml gives it."""
    found = re.search(rf"^    image: lingon:\$\{{LINGON_TAG:-([\w.]+)\}}-{target}$", _compose(), re.MULTILINE)
    assert found
    return f"lingon:{found[1]}-{target}"


def base_name() -> str:
    """The base image of the Dockerfile, without a digest."""
    found = re.search(r"^FROM (\S+?)(@\S+)? AS python$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1]


def missing() -> str | None:
    """Why no image can be built or run here, in one line; None if all is there."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux can build the images here: debootstrap and runc need it"
    lacking = [package for package, tool in PACKAGES.items() if shutil.which(tool) is None]
    if lacking:
        return f"missing packages: apt-get install {' '.join(lacking)}"
    return None


def environment() -> dict[str, str]:
    """The variables with which podman keeps everything in build/images; writes the files that they name."""
    limits = [f"{name}={ULIMIT}:{ULIMIT}" for name in ("nofile", "nproc")]
    _write(
        FOLDER / "containers.conf",
        {
            "containers": {"default_ulimits": limits},
            "engine": {
                "runtime": "runc",
                "cgroup_manager": "cgroupfs",  # no systemd is needed
                "events_logger": "file",
                "tmp_dir": str(FOLDER / "tmp"),
            },
            "network": {"network_config_dir": str(FOLDER / "networks"), "network_backend": "cni"},
        },
    )
    storage = {"driver": "overlay", "graphroot": str(FOLDER / "storage"), "runroot": str(FOLDER / "run")}
    _write(FOLDER / "storage.conf", {"storage": storage})
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(FOLDER),
        "CONTAINERS_CONF": str(FOLDER / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(FOLDER / "storage.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "DISABLE_HC_SYSTEMD": "true",  # health checks run when `podman healthcheck run` asks; no timers of systemd
    }


def podman(*arguments: object, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
    """Run podman; its output is text. Raises CalledProcessError unless check is False."""
    return subprocess.run(
        ["podman", *map(str, arguments)],
        env=environment(),
        text=True,
        check=check,
        **{"stdout": subprocess.PIPE, **options},  # type: ignore[call-overload]
    )


def exists(image: str) -> bool:
    """Whether an image is in build/images."""
    return podman("image", "exists", image, check=False).returncode == 0


def make_base(source: str) -> None:
    """Put the base image into build/images; source: `registry` or `debootstrap`."""
    name = base_name()
    if exists(name):
        return
    if source == "registry":
        podman("pull", name, stdout=None)
        return
    release = name.rpartition("-")[2]
    tree = FOLDER / "base"
    if not tree.exists():
        part = FOLDER / "base.part"
        shutil.rmtree(part, ignore_errors=True)
        _run("debootstrap", "--variant=minbase", f"--include={IN_BASE}", release, part, MIRROR)
        _finish(part)
        part.rename(tree)
    packed = subprocess.Popen(["tar", "-C", tree, "-cf", "-", "."], stdout=subprocess.PIPE)
    podman(
        "import", "--change", "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "-", name, stdin=packed.stdout
    )
    if packed.wait():
        raise ImageError(f"tar of {tree} ended with {packed.returncode}")


def _finish(tree: Path) -> None:
    """Make a tree of Debian look like the image: Python and pip in /usr/local, an ensurepip with its own wheels."""
    (version,) = (path.name for path in (tree / "usr/lib").glob("python3.*"))
    wanted = re.search(r":(\d+\.\d+)\.", base_name())
    if wanted is None or version != f"python{wanted[1]}":
        raise ImageError(f"{base_name()}: Debian has {version}; use --base registry")
    (tree / "usr/lib" / version / "EXTERNALLY-MANAGED").unlink(missing_ok=True)
    wheels, bundled = tree / "usr/share/python-wheels", tree / "usr/lib" / version / "ensurepip/_bundled"
    shutil.rmtree(bundled, ignore_errors=True)
    wheels.rename(bundled)
    wheels.symlink_to(f"/usr/lib/{version}/ensurepip/_bundled")  # Debian's ensurepip looks there
    for name in ("python", "python3"):
        (tree / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
    (pip,) = (path.name for path in bundled.glob("pip-*.whl"))
    call = f"python3 {pip}/pip install --quiet --root-user-action=ignore --no-index --find-links . pip setuptools"
    clean = {"PATH": "/usr/sbin:/usr/bin:/bin"}
    script = f"cd /usr/share/python-wheels && {call} && rm -rf /var/cache/apt/archives /var/lib/apt/lists/*"
    subprocess.run(["chroot", tree, "sh", "-c", script], env=clean, check=True)


def build(target: str) -> None:
    """Build an image under the tag that compose.yaml gives it."""
    context = FOLDER / "Dockerfile"
    text = DOCKERFILE.read_text(encoding="utf-8")
    context.write_text(re.sub(r"^(FROM \S+?)@\S+", r"\1", text, flags=re.MULTILINE))  # a stand-in has another digest
    (FOLDER / "pip.conf").write_text(f"[global]\ncert = {CERTIFICATES / 'ca-certificates.crt'}\n")
    mounts = [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", f"--volume={FOLDER / 'pip.conf'}:/etc/pip.conf:ro"]
    ignore = DOCKERFILE.with_name("Dockerfile.dockerignore")
    options = ["--isolation=chroot", "--format=docker", "--pull=never", "--layers", f"--ignorefile={ignore}"]
    podman("build", *options, *mounts, "--file", context, "--target", target, "--tag", tag(target), ROOT, stdout=None)


def install_tools() -> None:
    """Install podman-compose and the tools for the list of parts (SBOM) and its scan into build/images/tools."""
    lock, folder = ROOT / "deploy" / "locks" / "images.txt", FOLDER / "tools"
    done = folder / "images.txt"
    if not done.exists() or done.read_bytes() != lock.read_bytes():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [folder / "bin" / "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--require-hashes", "--requirement", lock], check=True)
        shutil.copyfile(lock, done)


def _compose() -> str:
    return (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")


def _run(*command: object) -> None:
    print("+", *command, flush=True)
    log = FOLDER / "debootstrap.log"
    with log.open("w") as out:
        code = subprocess.run([*map(str, command)], stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        raise ImageError(f"{command[0]} ended with {code}; see {log}")


def _write(path: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
    """Write tables of strings and lists of strings as TOML."""
    lines = []
    for name, values in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Build the images that the arguments name."""
    parser = argparse.ArgumentParser(description="Build the images of deploy/ in build/images.")
    parser.add_argument("targets", nargs="+", choices=TARGETS)
    parser.add_argument("--base", choices=("debootstrap", "registry"), default="debootstrap")
    arguments = parser.parse_args()
    try:
        if reason := missing():
            raise ImageError(reason)
        install_tools()
        make_base(arguments.base)
        for target in arguments.targets:
            build(target)
    except ImageError as error:
        print(f"lingon: error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"lingon: error: {' '.join(map(str, error.cmd))} ended with {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
