# The usual ways into the build; bare `make` prints them. Meson does the work: build/ is its folder, build/NAME those of
# the other kinds of build.
.POSIX:
.PHONY: help run build check test-full test-san test-fault fuzz bench format clean cross-aarch64 check-macos install dist

help:
	@echo 'make run            build, then talk to the model that comes along (without a terminal: one prompt)'
	@echo 'make build          build/tern'
	@echo 'make check          what every change must pass: style, build, tests (a few minutes)'
	@echo 'make test-full      check, and clang, clients, all drafts, sanitizers, aarch64 under qemu, macOS'
	@echo 'make test-san       the tests under ASan+UBSan, then under TSan'
	@echo 'make test-fault     failing allocations and input/output, truncated files, kill -9'
	@echo 'make fuzz           every fuzz target with libFuzzer (SECONDS=30 each; FUZZ="gguf json" for some)'
	@echo 'make bench          speed of this machine, beside its measured ceilings'
	@echo 'make cross-aarch64  cross build and its tests under qemu'
	@echo 'make check-macos    compiles and links for macOS with zig, which it fetches'
	@echo 'make format         clang-format 14 over the tree'
	@echo 'make install        to /usr/local, or PREFIX at the first build'
	@echo 'make dist           static programs, .deb and wheel for x86-64 and aarch64 in build/dist (doc/deploy.md)'
	@echo 'make clean          removes build/'

PREFIX = /usr/local
PROMPT = What are common mistakes people make with solenogaster?
SECONDS = 30
FUZZ =

build/build.ninja:
	@tools/deps.sh build
	meson setup build --prefix $(PREFIX)

build: build/build.ninja
	@ninja -C build

run: build/build.ninja
	@ninja -C build tern
	@tools/run.sh '$(PROMPT)'

check:
	@if [ "$$CI" = true ]; then \
		tools/deps.sh ci && tools/check.sh style gcc clang clients; \
	else \
		tools/deps.sh check && tools/check.sh style gcc; \
	fi

test-full:
	@tools/deps.sh ci
	@tools/check.sh style gcc clang clients dist drafts san tsan cross macos

test-san:
	@tools/deps.sh check
	@tools/check.sh san tsan

test-fault:
	@tools/deps.sh check
	@tools/check.sh fault

cross-aarch64:
	@tools/deps.sh cross
	@tools/check.sh cross

check-macos:
	@tools/deps.sh build
	@tools/check.sh macos

fuzz:
	@tools/deps.sh fuzz
	@tools/fuzz.sh $(SECONDS) $(FUZZ)

bench: build
	bench/models.sh

format:
	@tools/list_files.sh . | grep -E '^(src|include|test|fuzz|bench)/.*\.(c|h)$$' | grep -v '^test/data/' | \
		xargs clang-format-14 -i

dist:
	@tools/deps.sh dist
	@tools/dist.sh

install: build
	meson install -C build

clean:
	rm -rf build
