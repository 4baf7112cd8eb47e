#!/usr/bin/env bash
# A session with amqp-tools (librabbitmq's command lines). Prints "ok NAME" or
# "not ok NAME: why" for each step.
set -u
url=${1%/} # a path of "/" alone would mean the vhost with no name
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

step() {
  local name=$1
  shift
  if why=$("$@" 2>&1); then echo "ok $name"; else echo "not ok $name: $why"; fi
}

declare_queue() { [ "$(amqp-declare-queue -u "$url" -q tools.q -d)" = tools.q ]; }

publish_and_get() {
  amqp-publish -u "$url" -r tools.q -p -C text/plain -b "hello" || return 1
  [ "$(amqp-get -u "$url" -q tools.q)" = hello ] || return 1
  ! amqp-get -u "$url" -q tools.q
}

publish_lines() {
  seq 1 100 | amqp-publish -u "$url" -r tools.q -l || return 1
  amqp-consume -u "$url" -q tools.q -c 100 -p 10 cat > "$tmp/got" || return 1
  cmp "$tmp/got" <(seq 1 100)
}

consume_by_exchange() {
  timeout 20 amqp-consume -u "$url" -e amq.topic -r "tools.#" -c 1 cat > "$tmp/one" &
  local pid=$! i
  for i in $(seq 100); do
    amqp-publish -u "$url" -e amq.topic -r tools.a.b -b routed || return 1
    sleep 0.1
    kill -0 $pid 2> /dev/null || break
  done
  wait $pid && [ "$(cat "$tmp/one")" = routed ]
}

large_body() {
  head -c 3000000 /dev/urandom > "$tmp/large"
  amqp-publish -u "$url" -r tools.q < "$tmp/large" || return 1
  amqp-get -u "$url" -q tools.q > "$tmp/back" || return 1
  cmp "$tmp/large" "$tmp/back"
}

missing_queue() {
  local out
  out=$(amqp-get -u "$url" -q tools.missing 2>&1) && return 1
  case $out in *404*) ;; *) echo "$out"; return 1 ;; esac
}

delete_queue() {
  amqp-publish -u "$url" -r tools.q -b left || return 1
  [ "$(amqp-delete-queue -u "$url" -q tools.q)" = 1 ]
}

step declare_queue declare_queue
step publish_and_get publish_and_get
step publish_lines publish_lines
step consume_by_exchange consume_by_exchange
step large_body large_body
step missing_queue missing_queue
step delete_queue delete_queue
