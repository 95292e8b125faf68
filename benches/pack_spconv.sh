#!/usr/bin/env bash
# Packs spconv for the GPU peers into an archive, for a machine that can't fetch packages:
#
#     benches/pack_spconv.sh OUT.tar.xz [PYTHON_VERSION]
#
# It takes about 45 MB, which is why it is xz: the wheels are twice that. PYTHON_VERSION is that of the machine's Python,
# 3.12 by default. Then, there: `SPCONV=OUT.tar.xz benches/gpu_run.sh ...`. What spconv needs beside these packages (NumPy,
# pybind11, ninja, portalocker, requests, sympy) must be there.
set -euo pipefail
out=$1
version=${2:-3.12}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The last spconv was built for CUDA 12.6; it brings that runtime along, which newer drivers take.
python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --dest "$work/wheels" \
    spconv-cu126==2.3.8 cumm-cu126==0.7.11 pccm==0.4.16 ccimport==0.4.4 fire==0.7.1 lark==1.3.1 termcolor==3.3.0
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/site"; done
tar -C "$work/site" -cf - . | xz -6 --threads=0 > "$out"
du -h "$out"
