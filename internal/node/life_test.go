package node

import (
	"errors"
	"testing"
)

// Two nodes that run one after the other in one process may both fail before whoever runs the process has noticed.
func TestAProcessFailsOnce(t *testing.T) {
	l := &Life{fatal: make(chan struct{})}
	first := errors.New("the disk is broken")
	l.fail(first)
	l.fail(errors.New("so it is"))
	select {
	case <-l.Done():
	default:
		t.Error("the process does not end")
	}
	if err := l.Err(); err != first {
		t.Errorf("the reason is %v", err)
	}
}
