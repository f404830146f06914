#!/bin/sh
# sh secrets.sh FOLDER: makes what compose.yaml wants in its folder secrets/, once; what is there already is kept. As root, so
# that each file belongs to who reads it: 10001 is healthboard in its image, 999 PostgreSQL and Valkey in theirs.
#
# The users of the broker are made by healthboard itself, before or after this:
#   docker run --rm -u 0 -v "$PWD/secrets:/s" --entrypoint python healthboard:0.1.0 manage.py broker_acl /s --at rediss://valkey:6379/0
# and then once more this script, which sets the owners. reader.aws and actor.aws are AWS configuration files of yours;
# metrics-token, oidc-client-secret, secret-key-fallbacks and smtp-password are yours where compose.override.yaml names them.
set -eu
umask 077
folder=${1:?usage: sh secrets.sh FOLDER}
mkdir -p "$folder"
cd "$folder"

word() { openssl rand -hex 24; }
missing() { [ ! -e "$1" ]; }

# Django wants 50 characters of this one.
missing secret-key && openssl rand -hex 32 > secret-key
missing external-id && word > external-id
missing postgres.password && word > postgres.password

if missing roles.sql; then
    owner=$(word) app=$(word)
    tls='sslmode=verify-full&sslrootcert=/run/secrets/ca.pem'
    printf 'postgres://healthboard_owner:%s@db/healthboard?%s\n' "$owner" "$tls" > owner.url
    printf 'postgres://healthboard:%s@db/healthboard?%s\n' "$app" "$tls" > database.url
    cat > roles.sql <<SQL
CREATE ROLE healthboard_owner LOGIN PASSWORD '$owner';
CREATE ROLE healthboard LOGIN PASSWORD '$app';
CREATE DATABASE healthboard OWNER healthboard_owner;
REVOKE ALL ON DATABASE healthboard FROM PUBLIC;
GRANT CONNECT ON DATABASE healthboard TO healthboard;
SQL
fi

# An authority of this installation alone; its key is needed again only when these certificates end, in ten years.
if missing ca.pem; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=healthboard" \
        -keyout ca.key -out ca.pem 2> /dev/null
fi
for name in db valkey; do
    missing "$name.pem" || continue
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$name" -keyout "$name.key" \
        -out "$name.csr" 2> /dev/null
    printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth\n' "$name" > "$name.ext"
    openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -extfile "$name.ext" \
        -out "$name.pem" 2> /dev/null
    rm -f "$name.csr" "$name.ext"
done

chmod 644 ca.pem db.pem valkey.pem
for one in database.url owner.url secret-key external-id web.url beat.url reader.url actor.url sender.url reader.aws actor.aws \
    metrics-token oidc-client-secret secret-key-fallbacks smtp-password; do
    if ! missing "$one"; then chown 10001:10001 "$one"; fi
done
for one in db.key valkey.key postgres.password roles.sql users.acl; do
    if ! missing "$one"; then chown 999:999 "$one"; fi
done
