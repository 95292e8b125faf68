#!/usr/bin/env bash
# Packs spconv for the GPU peers into an archive, for a machine that can't fetch packages:
#
#     benches/pack_spconv.sh OUT.tar.xz [PYTHON_VERSION]
#
# The archive has about 45 MB, by xz: the wheels are twice as large. PYTHON_VERSION is the version of the machine's Python,
# 3.12 by default. Use it there by `SPCONV=OUT.tar.xz benches/gpu_run.sh ...`. The other packages that spconv needs (NumPy,
# pybind11, ninja, portalocker, requests, sympy) must be installed there.
set -euo pipefail
out=$1
version=${2:-3.12}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The newest spconv is built for CUDA 12.6. It brings that runtime along, which newer drivers support.
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --dest "$work/wheels" \
    spconv-cu126==2.3.8 cumm-cu126==0.7.11 pccm==0.4.16 ccimport==0.4.4 fire==0.7.1 lark==1.3.1 termcolor==3.3.0
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/site"; done
tar -C "$work/site" -cf - . | xz -6 --threads=0 > "$out"
du -h "$out"
