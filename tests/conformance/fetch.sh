#!/usr/bin/env bash
# fetch.sh: brings PyTorch 2.6.0's own CUDA tests into .conformance/ (ignored by git), from Debian's source
# package. They stay out of this project: third-party text. Quick when they are there.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$PWD/.conformance
if [ -e "$target/test_cuda.py" ] && [ -e "$target/test_cuda_trace.py" ]; then exit; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The mirror this machine uses, asked for the release that has that version.
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" | sort -u | head -n 1)
if [ -z "$mirror" ]; then
  echo "fetch.sh: apt knows no mirror of Debian" >&2
  exit 1
fi
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$work/sources.list"
own=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
apt-get "${own[@]}" update
(cd "$work" && apt-get "${own[@]}" source --download-only pytorch > /dev/null)
mkdir -p "$target"
tar xf "$work"/pytorch_2.6.0*.orig.tar.* -C "$target" --strip-components=2 --wildcards \
  '*/test/test_cuda.py' '*/test/test_cuda_trace.py'
