#!/bin/bash
# User data of a GPU node: closes instance metadata to tasks, then installs the reporter and the admission gate. Fill in the three
# lines below; README.md says how the archive is made. In the launch template besides, since a machine cannot set it for itself:
#   MetadataOptions: HttpTokens=required, HttpPutResponseHopLimit=1
# It may run again. Where it fails, the ECS agent starts as ever, and healthboard shows a machine without a reporter.
set -euo pipefail

HEALTHBOARD_URL=https://healthboard.example.com
ARCHIVE=https://files.example.com/healthboard-node.tar.gz
ARCHIVE_SHA256=0000000000000000000000000000000000000000000000000000000000000000

# 1. Tasks in awsvpc mode get no metadata; for those in bridge mode a unit drops it, before Docker starts. Tasks in host mode
#    share the machine's network: nothing closes it to them.
install -d /etc/ecs
touch /etc/ecs/ecs.config
sed -i '/^ECS_AWSVPC_BLOCK_IMDS=/d' /etc/ecs/ecs.config
echo 'ECS_AWSVPC_BLOCK_IMDS=true' >> /etc/ecs/ecs.config

# 2. The archive is what it was when it was made, wherever it comes from.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl --fail --silent --show-error --retry 5 --retry-connrefused --max-time 60 --output "$work/node.tar.gz" "$ARCHIVE"
echo "$ARCHIVE_SHA256  $work/node.tar.gz" | sha256sum --check --quiet
tar --extract --gzip --no-same-owner --file "$work/node.tar.gz" --directory "$work"

# 3. One file, NVIDIA's pynvml.py beside it, a user without rights, three units.
install -D -m 644 -t /opt/healthboard "$work/healthboard_node.py" "$work/pynvml.py"
install -D -m 644 -t /etc/sysusers.d "$work/healthboard-node.conf"
install -D -m 644 -t /etc/systemd/system "$work"/healthboard-{node,gate,metadata}.service
install -d /etc/healthboard
printf 'HEALTHBOARD_URL=%s\n' "$HEALTHBOARD_URL" > /etc/healthboard/node.env
systemd-sysusers healthboard-node.conf
systemctl daemon-reload
systemctl enable --now healthboard-metadata.service
# The agent's start has been queued since before the gate was there, and waits for the end of user data: what it requires now
# is asked for at its next start only, from the next boot on. So the gate is queued here. Ordered before the agent, it is what the
# agent waits for, and ends the agent's start if it fails. Nothing here waits for it.
systemctl enable healthboard-gate.service
systemctl start --no-block healthboard-gate.service
systemctl enable --now healthboard-node.service
