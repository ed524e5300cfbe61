"""What is in the images: the server and what it needs, nothing that helps an intruder, nothing that users can write."""

from __future__ import annotations

import re
import stat
import tarfile

import pytest

from lingon.serving.settings import Settings
from tests.support.containers import USER, config, container, files
from tests.support.dockerfile import environment

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]
TARGETS = pytest.mark.parametrize("target", ["cpu", "gpu"])
MOST_ADDED = {"cpu": 250e6, "gpu": 2.8e9}  # bytes of the packages and the model
COMPILERS = {"gcc", "g++", "cc", "c++", "clang", "ld", "as", "make", "cmake", "ninja", "nvcc", "rustc", "cargo", "go"}
FORBIDDEN = {"torch", "onnx", "onnxscript", "safetensors", "pip", "setuptools", "wheel", "hatchling", "ensurepip"}
WRITABLE_FOLDERS = {"/tmp", "/var/tmp", "/run/lock"}  # by every user, with the sticky bit; Debian makes them
NEITHER = {tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE}


@TARGETS
def test_the_image_declares_what_the_dockerfile_says(target):
    values = config(target)["Config"]
    assert values["User"] == f"{USER}:{USER}"
    assert values["Entrypoint"] == ["lingon", "serve"]
    assert not values.get("Cmd")
    assert set(values["ExposedPorts"]) == {"50051/tcp", "9464/tcp"}
    assert values["StopSignal"] in ("SIGTERM", "15")
    assert config(target)["Healthcheck"]["Test"] == ["CMD", "lingon", "healthcheck"]
    variables = dict(each.split("=", 1) for each in values["Env"])
    wanted = {name: value for name, value in environment(target).items() if name != "PATH"}
    assert {name: variables[name] for name in wanted} == wanted
    assert variables["PATH"].startswith("/opt/lingon/bin:")


@TARGETS
def test_no_installer_no_compiler_and_no_training_library_is_in_it(target):
    names = {path: path.rpartition("/")[2] for path in files(target)}
    assert sorted(path for path, name in names.items() if name in FORBIDDEN) == []
    assert sorted(path for path, name in names.items() if re.fullmatch(r"(pip|setuptools|torch)-.*", name)) == []
    commands = {path for path, name in names.items() if name in COMPILERS and "/bin/" in path}
    assert commands == set()


@TARGETS
def test_of_lingon_it_has_what_serving_needs(target):
    inside = re.compile(r"/opt/lingon/lib/python3\.\d+/site-packages/lingon/([^/]+)/.+\.py")
    packages = {found[1] for path in files(target) if (found := inside.fullmatch(path))}
    assert packages == {"admin", "bundle", "cli", "client", "serving", "translation"}
    assert [path for path in files(target) if "bench/serve" in path] == []


@TARGETS
def test_it_has_the_library_of_native_operators(target):
    inside = re.compile(r"/opt/lingon/lib/python3\.\d+/site-packages/lingon/serving/runtime/lingon_kernels\.so")
    assert sum(inside.fullmatch(path) is not None for path in files(target)) == 1


@TARGETS
def test_no_file_gives_its_user_more_rights(target):
    special = [path for path, each in files(target).items() if each.mode & (stat.S_ISUID | stat.S_ISGID)]
    assert [path for path in special if files(target)[path].kind == tarfile.REGTYPE] == []


@TARGETS
def test_the_user_owns_no_file_and_can_write_to_none(target):
    assert [path for path, each in files(target).items() if each.user == USER] == []
    open_to_all = {
        path for path, each in files(target).items() if each.mode & stat.S_IWOTH and each.kind not in NEITHER
    }
    assert open_to_all <= WRITABLE_FOLDERS
    assert all(files(target)[path].mode & stat.S_ISVTX for path in open_to_all)


@TARGETS
def test_what_lingon_adds_is_not_larger_than_its_bound(target):
    added = sum(each.size for path, each in files(target).items() if path.startswith(("/opt/lingon", "/models")))
    assert added <= MOST_ADDED[target]


def test_a_command_that_is_left_out_says_so():
    with container("cpu") as server:
        for verb in ("train", "export", "bench"):
            ran = server.run("lingon", verb, check=False)
            assert ran.returncode == 1
            assert ran.stdout.startswith(f"lingon: error: lingon {verb} is not part of this installation: ")


def test_without_a_card_the_image_for_gpus_refuses_to_start_in_one_line():
    """A container without a device has no driver, also on a machine with a card."""
    with container("gpu", wait=False) as server:
        assert server.exit_code() == 1
        errors = [line for line in server.log().splitlines() if line.startswith("lingon: error:")]
    assert errors == ["lingon: error: device cuda: there is no NVIDIA driver (libcuda.so.1 is not found)"]


@TARGETS
def test_the_settings_of_the_image_are_valid(target):
    variables = dict(each.split("=", 1) for each in config(target)["Config"]["Env"])
    own = {name.removeprefix("LINGON_").lower(): value for name, value in variables.items() if "LINGON_" in name}
    assert Settings.model_validate(own).device == {"cpu": "cpu", "gpu": "cuda"}[target]
