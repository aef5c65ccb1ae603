"""Source -> cubin without a GPU: reports, errors, and a cache that is right under change, damage and crowding."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openjev_lab.errors import LabError
from openjev_lab.ops import build

SOURCE = """
#include "scale.cuh"
extern "C" __global__ void __launch_bounds__(128) scale(float* x, int n) {
  __shared__ float tile[128];
  int i = blockIdx.x * 128 + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) x[i] = tile[threadIdx.x ^ 1] * FACTOR;
}
extern "C" __global__ void copy(float* x, const float* y) { x[threadIdx.x] = y[threadIdx.x]; }
"""
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* x, int n) {
  float a[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) a[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 200; ++i) x[i * 1024 + threadIdx.x] = a[i] * a[(i * 7) % 200];
}
"""


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "scale.cuh").write_text('#pragma once\n#include "factor.cuh"\n')
    (folder / "factor.cuh").write_text("#pragma once\n#ifndef FACTOR\n#define FACTOR 2.f\n#endif\n")
    return folder


def compile_scale(headers: Path, cache_dir: Path, **changes):
    settings = {"name": "scale.cu", "arch": "sm_90a", "include_dirs": [headers], "cache_dir": cache_dir} | changes
    return build.compile_text(changes.pop("text", SOURCE), **{k: v for k, v in settings.items() if k != "text"})


def test_reports_every_kernel(headers: Path, tmp_path: Path) -> None:
    done = compile_scale(headers, tmp_path / "cache")
    assert {kernel.name for kernel in done.kernels} == {"scale", "copy"}
    assert done.kernel("scale").shared_bytes == 512
    assert done.kernel("scale").spill_store_bytes == done.kernel("scale").stack_bytes == 0
    assert 2 <= done.kernel("copy").registers <= 32
    assert done.cubin[:4] == b"\x7fELF" and done.path is not None and done.path.read_bytes() == done.cubin
    with pytest.raises(LabError, match="no kernel 'gone' in this build; it has .*scale"):
        done.kernel("gone")


def test_spills_are_seen(tmp_path: Path) -> None:
    done = build.compile_text(SPILLS, name="spills.cu", arch="sm_80", cache_dir=tmp_path)
    assert done.kernel("spills").spill_store_bytes > 0 and done.kernel("spills").spill_load_bytes > 0


def test_second_time_comes_from_the_cache(headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_scale(headers, tmp_path / "cache")
    monkeypatch.setattr(build, "_run_nvrtc", lambda *_: pytest.fail("compiled again"))
    again = compile_scale(headers, tmp_path / "cache")
    assert again.cached and not first.cached
    assert (again.cubin, again.kernels, again.key) == (first.cubin, first.kernels, first.key)


def test_key_follows_everything_that_decides_the_result(
    headers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(text: str = SOURCE, arch: str = "sm_90a", **defines: int) -> str:
        return build.build_key(text, arch=arch, defines=defines, include_dirs=[headers])

    keys = [key(), key(SOURCE + "\n"), key(arch="sm_80"), key(FACTOR=3), key(FACTOR=4)]
    (headers / "factor.cuh").write_text("#define FACTOR 5.f\n")  # included by an included header
    keys.append(key())
    monkeypatch.setattr(build, "compiler_version", lambda: "nvrtc 99.0")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_damaged_entry_is_built_anew(headers: Path, tmp_path: Path) -> None:
    first = compile_scale(headers, tmp_path / "cache")
    assert first.path is not None
    first.path.write_bytes(b"half a file")
    again = compile_scale(headers, tmp_path / "cache")
    assert not again.cached and again.cubin == first.cubin
    assert compile_scale(headers, tmp_path / "cache").cached
    assert not list((tmp_path / "cache").glob(".aside-*"))


def test_many_jobs_at_once(headers: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        builds = list(pool.map(lambda _: compile_scale(headers, cache), range(8)))
    assert len({done.cubin for done in builds}) == 1
    assert [entry.name for entry in cache.iterdir()] == [builds[0].key]
    facts = json.loads((cache / builds[0].key / "build.json").read_text())
    assert {kernel["name"] for kernel in facts["kernels"]} == {"scale", "copy"}


def test_unwritable_cache_still_builds(headers: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("not a folder")  # root ignores modes, so a mode would prove nothing
    done = compile_scale(headers, blocked / "cache")
    assert done.path is None and done.cubin[:4] == b"\x7fELF"


def test_cache_place_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENJEV_LAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert build.default_cache_dir() == Path("/x/openjev-lab/cubin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert build.default_cache_dir() == Path("/h/.cache/openjev-lab/cubin")
    monkeypatch.setenv("OPENJEV_LAB_CACHE", "/own")
    assert build.default_cache_dir() == Path("/own/cubin")


def test_error_names_file_line_caret_and_folders(headers: Path, tmp_path: Path) -> None:
    broken = SOURCE.replace("int i = blockIdx.x", "int i = blokIdx.x")
    with pytest.raises(LabError) as caught:
        compile_scale(headers, tmp_path, text=broken)
    message = str(caught.value)
    assert "scale.cu(5): error" in message and "blokIdx" in message and "^" in message
    assert str(headers) in message and "sm_90a" in message
    with pytest.raises(LabError, match="missing.cuh"):
        compile_scale(headers, tmp_path, text='#include "missing.cuh"\n')


def test_wrong_architecture_is_a_clear_error(headers: Path, tmp_path: Path) -> None:
    wgmma = 'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    with pytest.raises(LabError, match=r"for sm_80 with nvrtc(.|\n)*'wgmma.fence' not supported"):
        compile_scale(headers, tmp_path, text=wgmma, arch="sm_80")
