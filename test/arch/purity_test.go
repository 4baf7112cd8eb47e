package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// pure are the rooms that compute and do nothing else, with the packages they
// may not import.
var pure = map[string][]string{
	"queue":      {"os", "net", "time", "sync", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "context"},
	"catalog":    {"os", "net", "sync", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "context"},
	"routing":    {"os", "net", "time", "sync", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "context"},
	"wire":       {"os", "net", "sync", "log/slog", "context"},
	"message":    {"os", "net", "sync", "log/slog", "context"},
	"deadletter": {"os", "net", "time", "sync", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "context"},
	"amqperr":    {"os", "net", "sync", "log/slog", "context"},
}

// clockless are the rooms that are given the time and never ask for it.
var clockless = []string{"queue", "catalog", "routing", "wire", "message", "deadletter", "replica", "seglog", "cluster"}

// Pure rooms import nothing that acts, start no goroutine and make no channel.
func TestPureRooms(t *testing.T) {
	for _, f := range goFiles(t) {
		banned, is := pure[room(f.dir)]
		if !is || f.test || f.ast.Name.Name == "main" {
			continue
		}
		for _, path := range f.imports() {
			if slices.Contains(banned, path) {
				t.Errorf("%s imports %s, but the room is pure", f.path, path)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: a goroutine or channel in a pure room", f.fset.Position(n.Pos()))
			}
			return true
		})
	}
}

// Only clock knows what time it is; the rooms below the sessions are given it.
func TestClocks(t *testing.T) {
	asks := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"}
	for _, f := range goFiles(t) {
		if f.test || f.ast.Name.Name == "main" || !slices.Contains(clockless, room(f.dir)) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, is := n.(*ast.SelectorExpr)
			if !is {
				return true
			}
			if of, is := call.X.(*ast.Ident); is && of.Name == "time" && of.Obj == nil && slices.Contains(asks, call.Sel.Name) {
				t.Errorf("%s: time.%s; the clock is handed in", f.fset.Position(n.Pos()), call.Sel.Name)
			}
			return true
		})
	}
}

// Nothing but a room's own log line tells the world: no printing from inside.
func TestNoPrinting(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test || !strings.HasPrefix(f.dir, "internal/") || f.ast.Name.Name == "main" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, is := n.(*ast.SelectorExpr)
			if !is {
				return true
			}
			of, is := call.X.(*ast.Ident)
			if is && of.Obj == nil && (of.Name == "fmt" && strings.HasPrefix(call.Sel.Name, "Print") || of.Name == "log") {
				t.Errorf("%s: %s.%s; log with slog", f.fset.Position(n.Pos()), of.Name, call.Sel.Name)
			}
			return true
		})
	}
}
