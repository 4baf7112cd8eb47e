package blackbox

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/test/rig"
)

var update = flag.Bool("update", false, "write docs/compatibility.md anew")

const compatibilityHead = `# Compatibility with RabbitMQ

Holdfast speaks AMQP 0-9-1 with RabbitMQ's extensions and gives RabbitMQ's
answers. The same tests (` + "`test/blackbox`" + `) run against both brokers; they and the
test suites of client libraries (` + "`make interop`" + `) pass on RabbitMQ 3.10.8 and on
Holdfast, but for the differences in this table. Each difference is on purpose
and has a test that shows both answers. No argument of a queue, an exchange or a
consumer is refused for what is not there, but for those of streams.

Where RabbitMQ 4 refuses what RabbitMQ 3 took and no client can tell the difference
here, it is taken: ` + "`x-queue-version`" + ` 1 as well as 2 (there is one way of storing
messages, whichever is asked for), queues that are neither durable nor exclusive, a
` + "`frame_max`" + ` from 4096 on.

This page is written by ` + "`go generate ./test/blackbox`" + ` from the table in
` + "`test/blackbox/differences.go`" + `.

| Where | RabbitMQ 3.10.8 | Holdfast | Why |
|---|---|---|---|
`

// The page of differences is the table of the tests, and each entry is in use.
func TestCompatibilityPage(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString(compatibilityHead)
	for _, d := range Differences {
		for _, text := range []string{d.ID, d.Subject, d.RabbitMQ, d.Holdfast, d.Why} {
			if text == "" || strings.Contains(text, "|") {
				t.Fatalf("difference %q is not fully described", d.ID)
			}
		}
		page.WriteString("| " + d.Subject + " | " + d.RabbitMQ + " | " + d.Holdfast + " | " + d.Why + " |\n")
	}
	path := filepath.Join(rig.Root(), "docs", "compatibility.md")
	if *update {
		ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
		ok(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	if got := string(must(os.ReadFile(path))(t)); got != page.String() {
		t.Fatal("docs/compatibility.md is not what the table says; run go generate ./test/blackbox")
	}

	var source strings.Builder
	for _, file := range must(filepath.Glob("*_test.go"))(t) {
		source.Write(must(os.ReadFile(file))(t))
	}
	for _, d := range Differences {
		if !strings.Contains(source.String(), `pick(t, "`+d.ID+`"`) {
			t.Errorf("no test asks for difference %q", d.ID)
		}
	}
}
