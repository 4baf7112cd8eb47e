package ctl

import "fmt"

// The exit codes of rabbitmqctl, which are those of sysexits.
const (
	ExitUsage       = 64 // wrong arguments
	ExitData        = 65 // something named does not exist, or a value is wrong
	ExitNoUser      = 67 // the user does not exist
	ExitUnavailable = 69 // the node is not there, or cannot do it now
	ExitSoftware    = 70 // the node refused
	ExitTemporary   = 75 // no answer in time
	ExitConfig      = 78 // the configuration is wrong
)

// Error is a failure with its exit code.
type Error struct {
	Code int
	Text string
}

// Error gives the text.
func (e *Error) Error() string { return e.Text }

func failf(code int, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

func usagef(format string, args ...any) *Error {
	return failf(ExitUsage, "Error (argument validation): "+format, args...)
}
