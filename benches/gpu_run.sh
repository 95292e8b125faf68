#!/usr/bin/env bash
# Measures robocache and its peers on a GPU, on a machine that has a driver and a Python with PyTorch and Triton:
#
#     benches/gpu_run.sh BINARY OUT [PART ...]
#
# BINARY is robocache-bench (`cargo build --release -p robocache-bench`): the machine needs neither cargo nor a CUDA toolkit.
# The rows of each part go to OUT/gpu-PART.jsonl, its log to OUT/gpu-PART.log. PART is
#
#     robocache   all of BINARY
#     peers       resample, fuse, and one cloud a call
#     batches     many clouds a call
#
# The default is all parts in this order. Each takes two to four minutes on an H200 and can be a call of its own. Figures to
# be compared must come from the same machine, with nothing else running on it. Then, where the repository's Python is:
# `python benches/compare.py --write OUT/gpu-{robocache,peers,batches}.jsonl`.
#
#     before      the device's rows of the binary BEFORE, from an earlier state of robocache: two minutes
#
# is another part, for `python benches/compare.py --before OUT/gpu-before.jsonl OUT/gpu-robocache.jsonl`, which names the rows
# that became slower.
#
# PYTHON names the Python to use, python3 by default. SPCONV names an archive of spconv for it (benches/pack_spconv.sh), which
# is unpacked for this run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$1
out=$2
parts=("${@:3}")
[ ${#parts[@]} -gt 0 ] || parts=(robocache peers batches)
python=${PYTHON:-python3}
export BENCH_COMMAND=${BENCH_COMMAND:-benches/gpu_run.sh} PYTHONUNBUFFERED=1
mkdir -p "$out"

if [ -n "${SPCONV:-}" ]; then
    site=$(mktemp -d)
    trap 'rm -rf "$site"' EXIT
    tar -xf "$SPCONV" -C "$site"
    # spconv would look for a compiler otherwise.
    export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$site CUMM_DISABLE_JIT=1 SPCONV_DISABLE_JIT=1
fi

peers() {
    "$python" "$here/peers.py" gpu "$@"
}

failed=0
for part in "${parts[@]}"; do
    start=$SECONDS
    {
        case $part in
            robocache) peers machine && "$binary" ceilings resample fuse live modes voxelize crossover ;;
            peers) peers ceilings resample fuse voxelize resample-float32 ;;
            batches) peers voxelize-batches voxelize-uniform ;;
            before) peers machine && "${BEFORE:?names no binary}" ceilings resample fuse voxelize ;;
            *) echo "there is no part $part (allowed: robocache, peers, batches, before)" >&2 && false ;;
        esac
    } > "$out/gpu-$part.jsonl" 2> >(tee "$out/gpu-$part.log" >&2) || failed=1
    echo "$part: $(grep -c us_p50 "$out/gpu-$part.jsonl" || true) rows, $((SECONDS - start)) s"
done
exit $failed
