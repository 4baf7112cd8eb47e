package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// levels are the rooms from the ground up. A room imports rooms of lower
// levels only; the folders inside a room belong to it.
var levels = [][]string{
	// devcluster is at the bottom because it knows processes and ports, and nothing of the nodes that it runs.
	// bytecodec is at the bottom because the formats of pure machines, of agreement and of the links are all made of it.
	{"wire", "bytecodec", "amqperr", "vfs", "peer", "clock", "metrics", "config", "invariant", "planted", "devcluster"},
	{"message", "routing", "seglog", "spill", "detour"},
	{"queue", "catalog", "replica", "deadletter"},
	{"queuehost", "cluster", "auth"},
	{"broker"},
	{"session", "mgmt", "perf"},
	{"node"},
	{"sim"}, // runs whole nodes for tests; nobody imports it
}

// sideways are the arrows within a level that are allowed all the same.
var sideways = map[string]string{
	"* -> invariant": "assertions stand everywhere",
	"* -> planted":   "so do the mistakes that tests must notice",
	"peer -> clock":  "silence between nodes is measured, and tests turn the time",
}

// forbidden are arrows that the levels would allow and that are still wrong.
var forbidden = map[string]string{
	"perf -> broker":       "the load generator is a client: it knows the bytes and nothing else",
	"perf -> queuehost":    "the load generator is a client",
	"perf -> seglog":       "the load generator is a client",
	"session -> catalog":   "a session asks the broker what exists",
	"session -> routing":   "where a message goes is the broker's decision",
	"session -> replica":   "a session reaches no further than the broker and the queue's handle",
	"session -> queue":     "the machine of a queue is queuehost's alone",
	"session -> auth":      "who a client is, the broker finds out",
	"session -> vfs":       "a session has no files",
	"mgmt -> replica":      "management asks the broker",
	"mgmt -> seglog":       "management asks the broker",
	"mgmt -> queue":        "management asks the broker",
	"broker -> replica":    "agreement among members lies behind queuehost and the catalog's group",
	"broker -> vfs":        "the broker has no files",
	"routing -> vfs":       "routing is pure",
	"queue -> seglog":      "the machine does not know that there is a disk",
	"queue -> vfs":         "the machine does not know that there is a disk",
	"queue -> clock":       "time is in the command",
	"queue -> wire":        "a queue knows numbers, not bytes of the protocol",
	"queue -> message":     "a queue knows numbers, not bodies",
	"catalog -> seglog":    "the machine does not know that there is a disk",
	"catalog -> vfs":       "the machine does not know that there is a disk",
	"catalog -> clock":     "time is in the command",
	"seglog -> wire":       "the log never looks inside a record",
	"spill -> wire":        "the store never looks inside an item",
	"seglog -> amqperr":    "the log has no clients",
	"replica -> wire":      "agreement does not know what is agreed on",
	"replica -> message":   "agreement does not know what is agreed on",
	"replica -> amqperr":   "agreement has no clients",
	"message -> vfs":       "a message is bytes in memory",
	"deadletter -> vfs":    "an event becomes bytes in memory",
	"deadletter -> clock":  "time is in the event",
	"queuehost -> routing": "a queue never routes; what leaves it is republished by the broker",
	"queuehost -> vfs":     "files are seglog's",
}

// onlyImporters are modules of others that few rooms may know.
var onlyImporters = map[string][]string{
	"go.etcd.io/raft":                {"replica"},
	"github.com/spf13/cobra":         {"cmd", "mgmt"},
	"github.com/rabbitmq/amqp091-go": {"test", "examples"},
}

// fromOutside are rooms that know the broker only through a socket, with all
// they may import of it.
var fromOutside = map[string][]string{
	"perf": {"wire", "clock", "metrics", "invariant"},
}

func level(room string) int {
	for i, rooms := range levels {
		for _, r := range rooms {
			if r == room {
				return i
			}
		}
	}
	return -1
}

// room is the room of a path below the module, or "".
func room(path string) string {
	rest, is := strings.CutPrefix(path, "internal/")
	if !is {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return first
}

// Imports go one way, from the upper rooms to the lower.
func TestImports(t *testing.T) {
	for _, f := range goFiles(t) {
		from := room(f.dir)
		if f.test || from == "" {
			continue
		}
		if level(from) < 0 {
			t.Errorf("%s: room %q has no level", f.path, from)
			continue
		}
		for _, path := range f.imports() {
			inside, is := strings.CutPrefix(path, "holdfast/")
			if !is {
				continue
			}
			to := room(inside)
			switch {
			case to == "":
				t.Errorf("%s imports %s, which is no room", f.path, path)
			case to == from:
			case forbidden[from+" -> "+to] != "":
				t.Errorf("%s imports %s: %s", f.path, path, forbidden[from+" -> "+to])
			case fromOutside[from] != nil && !slices.Contains(fromOutside[from], to):
				t.Errorf("%s imports %s: it knows the broker only from outside", f.path, path)
			case level(to) > level(from):
				t.Errorf("%s imports %s, which is above it", f.path, path)
			case level(to) == level(from) && sideways["* -> "+to] == "" && sideways[from+" -> "+to] == "":
				t.Errorf("%s imports %s, which is beside it", f.path, path)
			}
		}
	}
}

// A module of others is known to the room that needs it, and to no other.
func TestForeignModules(t *testing.T) {
	for _, f := range goFiles(t) {
		owner := room(f.dir)
		if owner == "" {
			owner, _, _ = strings.Cut(f.dir, "/")
		}
		for _, path := range f.imports() {
			for module, only := range onlyImporters {
				if (path == module || strings.HasPrefix(path, module+"/")) && !slices.Contains(only, owner) && !f.test {
					t.Errorf("%s imports %s, which is for %v alone", f.path, path, only)
				}
			}
		}
	}
}

// The black-box tests see the broker from outside.
func TestOutsideStaysOutside(t *testing.T) {
	for _, f := range goFiles(t) {
		if !strings.HasPrefix(f.dir, "test/") {
			continue
		}
		for _, path := range f.imports() {
			if strings.HasPrefix(path, "holdfast/internal/") {
				t.Errorf("%s imports %s", f.path, path)
			}
		}
	}
}

// The arrows name rooms that exist in the list of levels.
func TestArrowsAreSpelledRight(t *testing.T) {
	for _, arrows := range []map[string]string{sideways, forbidden} {
		for arrow, reason := range arrows {
			from, to, _ := strings.Cut(arrow, " -> ")
			for _, r := range []string{from, to} {
				if r != "*" && level(r) < 0 {
					t.Errorf("arrow %q: no room %q", arrow, r)
				}
			}
			if reason == "" {
				t.Error(fmt.Sprintf("arrow %q has no reason", arrow))
			}
		}
	}
}
