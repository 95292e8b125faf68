# `make demo` runs the default dataflow, `make test` the tests, `make check` the checks that a change seldom trips over.
# Each target does its own set-up, which a second run skips.
# Needs Rust (1.95), Python (3.11) with venv, g++. There is one cargo profile, release: a second one would
# build dora twice.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := demo
# The order of the checks is deliberate, and cargo uses every core by itself.
.NOTPARALLEL:

PYTHON ?= python3
CARGO := cargo
BIN := .venv/bin
POLICIES := .venv-policies/bin/python
VIEW := .venv-view/bin/python
KERNELS := $(wildcard kernels/*.cu)
CUDA12_KERNELS := $(patsubst %.cu,target/%.cuda12.fatbin,$(KERNELS))
BUILT_KERNELS := $(patsubst %.cu,target/%.fatbin,$(KERNELS)) $(CUDA12_KERNELS)
# dora starts `python` nodes and its own daemon by name.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo record replay view sensors hub offline lerobot test check check-always check-format check-prose check-licences check-dataflows check-layout check-kernels check-hip clippy doc \
  advisories check-engine test-rust test-gpu test-emulator test-python test-policies test-lerobot test-view archive test-archive python python-policies python-view kernels kernels-hip emulator emulator-plain build accuracy bench bench-gpu bench-modes \
  bench-voxels bench-loader bench-lerobot bench-view view-picture kinematics-picture map-picture profile-gpu clean-out

demo: build python out/policy.onnx
	@rm -f out/report.json
	ROBOCACHE_POLICY_REPORT=$(CURDIR)/out/report.json dora run dataflow.yml --log-level info
	@python examples/policy/report.py out/report.json out

record: build
	@rm -rf out/recording
	dora run examples/record.yml --log-level info

replay: build python out/policy.onnx
	@rm -f out/report.json
	ROBOCACHE_POLICY_REPORT=$(CURDIR)/out/report.json dora run examples/replay.yml --log-level info
	@python examples/policy/report.py out/report.json examples/out

# The demo in a viewer: a window, or what ROBOCACHE_VIEW says. Rerun takes 500 MB.
view: build python python-view out/policy.onnx
	dora run examples/view.yml --log-level info

# The picture of the README. It needs a Vulkan driver, and no display: apt-get install mesa-vulkan-drivers
view-picture: build python python-view out/policy.onnx
	ROBOCACHE_VIEW="save $(CURDIR)/out/view.rrd" dora run examples/view.yml --log-level info
	$(VIEW) nodes/view/picture.py out/view.rrd docs/images/view.png

# The picture of docs/kinematics.md.
kinematics-picture: build python
	ROBOCACHE_PICTURE=$(CURDIR)/docs/images/kinematics.svg dora run examples/kinematics.yml --log-level info

# The picture of docs/map.md.
map-picture: build python
	ROBOCACHE_PICTURE=$(CURDIR)/docs/images/map.svg dora run examples/map.yml --log-level info

# Sensors of one's own: docs/sensors.md.
sensors: build
	$(CARGO) build --release --locked --example sensors
	dora run examples/sensors.yml --log-level info

# Messages of sensors as other software sends them: docs/sensors.md.
hub: build out/encoder.onnx
	dora run examples/hub.yml --log-level info

# From arrays to aligned windows: docs/offline.md.
offline: build
	python examples/offline/arrays.py out/offline
	dora run examples/offline.yml --log-level info

# A policy of LeRobot, made here: examples/lerobot/README.md. PyTorch and its dependencies take 7 GB.
lerobot: build python-policies out/lerobot/diffusion/robocache.json
	.venv-policies/bin/dora run examples/lerobot.yml --log-level info

# The checks that a contributor needs. Cheap ones come first; the closing lines of cargo and pytest come last.
test: check-format check-dataflows clippy test-rust check-layout test-gpu test-python
	@echo "make test: all passed"

# The other checks: comments, licences, kernels against their sources, all documentation, the features one by one, and the
# emulator in its variants. Continuous integration leaves the last two out if a change can't touch them: .ci/run.
check: check-always check-engine test-emulator
	@echo "make check: all passed"

check-always: check-prose check-licences check-kernels check-hip doc

check-format:
	$(CARGO) fmt --all --check

# Checks how doc comments begin, and looks for phrases at which a reader stops.
check-prose:
	$(PYTHON) tests/prose.py

# Licences, versions and sources of all dependencies: deny.toml.
check-licences: .venv/.stamp
	$(CARGO) deny --workspace --locked check licenses bans sources

# Known vulnerabilities, by the database of RustSec. It is fetched from GitHub, so this is not part of `make test`.
advisories: .venv/.stamp
	$(CARGO) deny --workspace --locked check advisories

check-dataflows: .venv/.stamp
	python tests/dataflows.py

# Checks that Rust and the kernels agree on their structs, and that kernels wait for each other. Runs after test-rust, which
# builds the tests that write Rust's side.
check-layout:
	$(CARGO) test --release --workspace --locked --lib --quiet the_layout_is_written
	$(PYTHON) tests/layout.py

# Checks that the pinned compilers make the kernels that are checked in, and that drivers of CUDA 12 can load those for them.
check-kernels: $(BUILT_KERNELS) target/kernels/.checked-cuda12
	@for fatbin in kernels/*.fatbin $(patsubst target/%,%,$(BUILT_KERNELS)); do cmp $$fatbin target/$$fatbin \
	  || { echo "$$fatbin is not what its source compiles to: run make kernels, and check it in" >&2; exit 1; }; done

# The same check for AMD's kernels. If clang is not installed, or is another version, it says that it skips.
check-hip: .venv/.stamp
	python kernels/hip/compile.py check

clippy:
	$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --workspace --no-deps --locked

# The library without dora and without CUDA: neither is among its dependencies, its own tests pass,
# and its documentation has no warning. The same with CUDA. With dora and HIP, clippy checks it without building it: cargo would
# build all of dora again, since the command needs other features of dora's dependencies.
LAYERS := robocache-yaml robocache-device robocache-geometry robocache-kinematics robocache-time robocache-stream robocache-ops robocache
ENGINE := --no-default-features $(addprefix -p ,$(LAYERS)) --locked
check-engine:
	@if $(CARGO) tree $(ENGINE) --edges normal,build --prefix none | grep -E '^(cudarc|dora|zenoh)'; then \
	  echo "the library depends on them without the features dora and cuda" >&2; exit 1; fi
	$(CARGO) test --release $(ENGINE) --lib
	$(CARGO) test --release $(ENGINE) --lib --features robocache/cuda
	$(CARGO) clippy --release $(ENGINE) --lib --features robocache/dora,robocache/hip -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --no-deps $(ENGINE)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --release --no-deps $(ENGINE) --features robocache/cuda

test-rust: emulator-plain
	$(CARGO) test --release --workspace --locked

# The CUDA path, on a driver that runs the kernels on the CPU: tests/emulator/README.md.
test-gpu: emulator-plain
	tests/emulator/run --plain

# The same tests with threads in another order, under sanitizers, with a watch on shared memory, and as other drivers.
test-emulator: emulator
	tests/emulator/run

# Runs after test-rust, so that crates of both are built once. Tests wait more than they compute, so there is one worker more
# than cores. With twice as many, dataflows whose senders do not wait for consumers lost messages at the start.
PYTEST_WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
test-python: build python out/policy.onnx out/encoder.onnx emulator-plain | test-rust
	python -m pytest tests python/tests -n $(PYTEST_WORKERS) --dist loadgroup

# LeRobot's policies on PyTorch, which takes 7 GB: not part of `make test`.
test-policies: build python-policies out/lerobot/diffusion/robocache.json
	$(POLICIES) -m pytest tests/test_lerobot.py

# The viewer with Rerun, which takes 500 MB: `make test` skips the tests that need Rerun.
test-view: build python-view
	$(VIEW) -m pytest tests/test_view.py tests/test_view_drawing.py

# LeRobot itself on datasets that `robocache convert` writes, in the same environment.
test-lerobot: build .venv-policies/.stamp
	$(POLICIES) -m pytest tests/test_lerobot_dataset.py

build: .venv/.stamp
	$(CARGO) build --release --workspace --locked

target/kernels/.checked-cuda12: $(CUDA12_KERNELS) kernels/cuda12.py docs/gpu.md
	$(PYTHON) kernels/cuda12.py check $(CUDA12_KERNELS)
	@touch $@

# Compiles the CUDA kernels, with the compilers of kernels/requirements.txt. A build takes the checked-in kernels, and needs no
# compiler of CUDA.
kernels: $(BUILT_KERNELS)
	cp $^ kernels/

# Compiles the kernels for AMD GPUs, with clang 22: on Debian 12, apt-get install clang-22 lld-22.
kernels-hip: .venv/.stamp
	python kernels/hip/compile.py write

target/kernels/%.fatbin: kernels/%.cu $(wildcard kernels/*.cuh) kernels/nvcc.options target/nvcc/.stamp
	@mkdir -p $(@D)
	target/nvcc/nvidia/cu13/bin/nvcc --options-file kernels/nvcc.options --threads 0 --output-file $@ $<

# Drivers before CUDA 12.4 can't read images that are compressed for size.
target/kernels/%.cuda12.fatbin: kernels/%.cu $(wildcard kernels/*.cuh) kernels/cuda12.py target/nvcc/.stamp
	@mkdir -p $(@D)
	$(PYTHON) kernels/cuda12.py compile $< target/kernels/$*.ptx
	target/nvcc/nvidia/cu13/bin/fatbinary --create=$@ -64 --compress-mode=speed --image3=kind=ptx,sm=75,file=target/kernels/$*.ptx

target/nvcc/.stamp: kernels/requirements.txt | .venv/.stamp
	@rm -rf target/nvcc
	python -m pip install --quiet --disable-pip-version-check --no-deps --target target/nvcc --requirement kernels/requirements.txt
	@touch $@

# The wheel of the Python package, installed in the environment of the demo and the tests. It holds the extension module that
# `build` has compiled: maturin would compile it, and what it depends on, again with the features of this package alone.
python: build
	@rm -rf target/wheel target/wheels
	@mkdir -p target/wheel target/wheels
	maturin pep517 write-dist-info --manifest-path python/Cargo.toml --metadata-directory target/wheel > target/wheel.log 2>&1 \
	  || { cat target/wheel.log >&2; exit 1; }
	cp -r python/robocache target/wheel/
	rm -rf target/wheel/robocache/__pycache__
	cp target/release/lib_native.so target/wheel/robocache/_native.abi3.so
	python -m wheel pack --dest-dir target/wheels target/wheel
	python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall target/wheels/*.whl

# The same wheel, in the environment of LeRobot's policies.
python-policies: python .venv-policies/.stamp
	$(POLICIES) -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall target/wheels/*.whl

# The same wheel and the viewer, in the environment of Rerun.
python-view: python .venv-view/.stamp
	$(VIEW) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall target/wheels/*.whl nodes/view

# The archive of a release, for this machine's architecture: docs/install.md. maturin tags its wheel with the oldest glibc that
# the wheel can run on.
TARGET ?= $(shell rustc -vV | sed -n 's/^host: //p')
archive: build out/policy.onnx
	rm -rf target/archive
	mkdir -p target/archive
	maturin build --quiet --release --locked --manifest-path python/Cargo.toml --out target/archive/wheels
	python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir target/archive/wheels nodes/view
	python packaging/archive.py --target $(TARGET) --built target/release --wheels target/archive/wheels --out target/archive

# Unpacks the archive elsewhere, installs what it says, and runs its demo, without anything of this checkout.
test-archive: archive
	python -m pytest packaging/test_archive.py

# The emulator in all variants: cheap if nothing has changed.
emulator:
	@$(MAKE) --no-print-directory -j 2 -f tests/emulator/Makefile

# The emulator without two variants: the sanitized one, and the one that watches shared memory.
emulator-plain:
	@$(MAKE) --no-print-directory -j 2 -f tests/emulator/Makefile plain hip broken target/emulator/self_test

# Measures how far interpolated values are from the truth and from SciPy's: the tables of docs/accuracy.md.
accuracy: build
	python tests/accuracy.py

# The figures of the documentation. Nothing else should run meanwhile.
bench: .venv/.stamp
	python benches/run.py

# The figures of a GPU. They need a GPU, and a Python with PyTorch, Triton and CuPy: `PEERS_PYTHON`. benches/gpu_run.sh measures,
# and can do so where there is no cargo.
PEERS_PYTHON ?= python3
bench-gpu: .venv/.stamp
	$(CARGO) build --release --workspace --locked
	PYTHON=$(PEERS_PYTHON) BENCH_COMMAND="make bench-gpu" benches/gpu_run.sh target/release/robocache-bench out
	python benches/compare.py --write out/gpu-robocache.jsonl out/gpu-peers.jsonl out/gpu-batches.jsonl

# Clouds on the CPU alone, beside spconv and Open3D, which get an environment of their own in out/peers.
bench-voxels: .venv/.stamp
	python benches/run.py --voxels

# The modes of interpolation on the CPU alone, beside NumPy, SciPy and C++ that looks up as tf2 does.
bench-modes: .venv/.stamp
	python benches/run.py --modes

# Windows for training on state alone, beside LeRobot's loader.
bench-loader: python-policies
	$(POLICIES) benches/lerobot_loader.py

# The cost of a message in the viewer: the table of nodes/view/README.md.
bench-view: python-view
	$(VIEW) benches/view.py

# Datasets of LeRobot, beside its own writer.
bench-lerobot: build .venv-policies/.stamp
	$(POLICIES) benches/lerobot_writer.py

# The limits that bound the kernels, by Nsight Compute.
profile-gpu: .venv/.stamp
	$(CARGO) build --release --workspace --locked
	mkdir -p out
	ncu --clock-control none --csv --page raw --section SpeedOfLight --section Occupancy --section LaunchStats \
	  target/release/robocache-bench profile > out/ncu.csv
	python benches/ncu.py --write out/ncu.csv

out/policy.onnx: examples/policy/make_model.py robocache.yml .venv/.stamp
	python examples/policy/make_model.py --config robocache.yml --out $@

out/encoder.onnx: examples/hub/make_encoder.py .venv/.stamp
	python examples/hub/make_encoder.py --out $@

out/lerobot/diffusion/robocache.json: examples/lerobot/make_policy.py examples/lerobot/config.yml .venv-policies/.stamp | build
	$(POLICIES) examples/lerobot/make_policy.py --out out/lerobot

.venv-policies/.stamp: examples/lerobot/requirements.txt
	$(PYTHON) -m venv .venv-policies
	$(POLICIES) -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --requirement $<
	@touch $@

.venv-view/.stamp: nodes/view/requirements.txt
	$(PYTHON) -m venv .venv-view
	$(VIEW) -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@

.venv/.stamp: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "$(PYTHON) can't make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	@touch $@

clean-out:
	rm -rf out examples/out
