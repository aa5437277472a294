# make demo    what gapless saves on real PyTorch runs
# make test    everything CI checks
# make build   the command, at build/release/bin/gapless
#
# Each installs what it needs first (Debian packages, a virtual environment in .venv).

.PHONY: help build demo test quick lint format peers conformance bench gpu-kit clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -5
	@echo "also: make quick (release tests only), make conformance (PyTorch's own tests), make lint,"
	@echo "      make format, make bench, make peers (PyTorch's own allocators, for gapless replay),"
	@echo "      make gpu-kit (all that a machine with a GPU needs), make clean, make help"
	@echo "SHORT=1, with bench, lint and conformance: a part of it, in a minute or two"
	@echo "THOROUGH=1, with test: all cases of what takes longest, half an hour more"

SETUP := tools/setup/packages.sh
# What was compiled for one build folder serves the others.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# From scratch files are compiled several at a time, which takes little more than half as long. Who
# changes them often is better off with `cmake --preset release -DCMAKE_UNITY_BUILD=OFF`.
FRESH := $(if $(wildcard build/release),,-DCMAKE_UNITY_BUILD=ON)

# CI compiles the kernels for the oldest and the newest architecture alone.
build:
	@$(SETUP)
	@cmake --preset release -DGAPLESS_WERROR=$(if $(CI),ON,OFF) $(if $(CI),"-DGAPLESS_CUDA_ARCHITECTURES=75;120") \
	  -DGAPLESS_WITHOUT_SANITIZED=$(or $(GAPLESS_WITHOUT_SANITIZED),OFF) $(FRESH) >/dev/null
	@echo "building (a minute or two, the first time)"
	@cmake --build --preset release --target gapless_command gapless gapless_preload gapless_cuda simgpu_front -- --quiet

demo: build
	@tools/setup/demo.sh

test:
	@$(SETUP)
	@tools/setup/test.sh

quick: build
	@cmake --build --preset release -- --quiet
	@ctest --preset release -j $$(nproc) $(TEST_FLAGS)

lint:
	@$(SETUP)
	@tools/setup/lint.sh

format:
	@git ls-files --cached --others --exclude-standard '*.h' '*.cc' | xargs clang-format -i

# PyTorch's own allocators, as peers of `gapless replay`; and gapless for that torch.
peers: build
	@tools/setup/torch.sh 2.11
	@tools/setup/adapter.sh 2.11
	@cmake --build --preset release --target torch_host-2.11 -- --quiet

conformance: build
	@tools/setup/torch.sh 2.11
	@tools/setup/torch.sh 2.15
	@tools/setup/adapter.sh 2.11 2.15
	@tests/conformance/conformance.sh $(if $(SHORT),--gapless-only)

bench: build
	@cmake --build --preset release --target corpus fast_path_bench large_heap_bench lock_bench recording_bench replay_bench streams_bench -- --quiet
	@build/release/bin/fast_path_bench $(if $(SHORT),--benchmark_min_time=0.001 '--benchmark_filter=threads|mixed/16')
	@build/release/bin/large_heap_bench $(if $(SHORT),--benchmark_filter=pages:many)
	@build/release/bin/recording_bench
	@build/release/bin/lock_bench $(if $(SHORT),--turns 1 --ms 2)
	@build/release/bin/streams_bench --iterations $(if $(SHORT),5,24)
	@build/release/bin/replay_bench examples/traces/*.gtrace --benchmark_counters_tabular=true

gpu-kit: build
	@tools/setup/gpu_kit.sh

clean:
	@rm -rf build gpu-kit
