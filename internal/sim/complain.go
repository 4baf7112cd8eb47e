package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// complaints is the log of a node: it says nothing, but an error in it is one of ours.
type complaints struct{ n *node }

// Enabled implements slog.Handler.
func (c complaints) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

// Handle implements slog.Handler.
func (c complaints) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, ", %s %v", a.Key, a.Value)
		return true
	})
	if c.n == c.n.w.frail() {
		c.n.w.trace("node %d: %s%s", c.n.id, r.Message, b.String())
		return nil
	}
	c.n.w.failf("node %d: %s%s", c.n.id, r.Message, b.String())
	return nil
}

// WithAttrs implements slog.Handler.
func (c complaints) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements slog.Handler.
func (c complaints) WithGroup(string) slog.Handler { return c }
