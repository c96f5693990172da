#!/usr/bin/env bash
# Installs, from Debian, the compilers, emulators and the MQTT broker that the tests of devices need.
set -euo pipefail
cd "$(dirname "$0")/.."
PACKAGES=(gcc-arm-none-eabi libnewlib-arm-none-eabi gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    qemu-user qemu-system-arm mosquitto)
SUDO=$([ "$(id -u)" = 0 ] || echo sudo)

if ! dpkg-query -W -f '${Status}\n' "${PACKAGES[@]}" 2>/dev/null |
    awk '/install ok installed/ { n++ } END { exit n != '"${#PACKAGES[@]}"' }'; then
    $SUDO apt-get update -qq
    $SUDO env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" >/dev/null
fi

# The qemu-arm of Debian 12 (7.2) cannot start a Cortex-M program: it stops at an assertion about a
# page of the kernel that such a program has not. Take that of Debian 13, for these tests alone: it
# needs no other package and nothing of the system is changed.
if [ "$(qemu-arm --version | awk 'NR == 1 { print int($3) }')" -lt 8 ] && [ ! -x build/qemu/usr/bin/qemu-arm ]; then
    ROOM=$(mktemp -d)
    trap 'rm -rf "$ROOM"' EXIT
    mkdir -p "$ROOM/lists/partial" "$ROOM/cache/archives/partial" build/qemu
    SITE=$(apt-get indextargets --format '$(SITE)' | grep -v security | head -n 1 || true)  # as set up here
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $SITE trixie main" \
        >"$ROOM/newer.list"
    NEWER=(-qq -o "Dir::Etc::sourcelist=$ROOM/newer.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$ROOM/lists" -o "Dir::Cache=$ROOM/cache" -o APT::Sandbox::User=root)
    if apt-get "${NEWER[@]}" update && (cd "$ROOM" && apt-get "${NEWER[@]}" download qemu-user); then
        dpkg-deb --fsys-tarfile "$ROOM"/qemu-user_*.deb | tar -x -C build/qemu ./usr/bin/qemu-arm
    else
        echo "No newer qemu-arm was found; Cortex-M4 is tested on an emulated board alone." >&2
    fi
fi
