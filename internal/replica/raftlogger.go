package replica

import (
	"context"
	"fmt"
	"log/slog"

	"holdfast/internal/invariant"
	"holdfast/internal/seglog"
)

// raftLogger passes on what the library has to say. What it calls information is
// told for each group and election, so it is for debugging only.
type raftLogger struct {
	l     *slog.Logger
	group seglog.GroupID
}

func (r raftLogger) debugf(format string, v ...any) {
	if r.l.Enabled(context.Background(), slog.LevelDebug) {
		r.l.Debug(fmt.Sprintf(format, v...), "group", uint64(r.group))
	}
}

func (r raftLogger) Debug(v ...any)                   { r.debugf("%s", fmt.Sprint(v...)) }
func (r raftLogger) Debugf(format string, v ...any)   { r.debugf(format, v...) }
func (r raftLogger) Info(v ...any)                    { r.debugf("%s", fmt.Sprint(v...)) }
func (r raftLogger) Infof(format string, v ...any)    { r.debugf(format, v...) }
func (r raftLogger) Warning(v ...any)                 { r.debugf("%s", fmt.Sprint(v...)) }
func (r raftLogger) Warningf(format string, v ...any) { r.debugf(format, v...) }
func (r raftLogger) Error(v ...any)                   { r.l.Error(fmt.Sprint(v...), "group", uint64(r.group)) }
func (r raftLogger) Errorf(format string, v ...any) {
	r.l.Error(fmt.Sprintf(format, v...), "group", uint64(r.group))
}
func (r raftLogger) Fatal(v ...any)                 { invariant.Failf("raft: %s", fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(format string, v ...any) { invariant.Failf("raft: "+format, v...) }
func (r raftLogger) Panic(v ...any)                 { invariant.Failf("raft: %s", fmt.Sprint(v...)) }
func (r raftLogger) Panicf(format string, v ...any) { invariant.Failf("raft: "+format, v...) }
