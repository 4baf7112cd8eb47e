package amqperr

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Scope says what an error ends.
type Scope uint8

const (
	// Channel errors close one channel; the connection goes on.
	Channel Scope = iota
	// Connection errors close the connection.
	Connection
)

// String returns "channel" or "connection".
func (s Scope) String() string {
	if s == Channel {
		return "channel"
	}
	return "connection"
}

// Error is a client's mistake, ready to be sent as channel.close or
// connection.close.
type Error struct {
	Code  uint16
	Text  string // with the code's name in front: "NOT_FOUND - ..."
	Scope Scope
	// Class and Method name the method that failed, zero where there is none.
	// They are filled in by the session, which knows what it was carrying out.
	Class, Method uint16
	is            error // what errors.Is finds besides; nil: nothing
}

// Error returns the reply text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns what kind of mistake it is, where somebody may ask.
func (e *Error) Unwrap() error { return e.is }

// ForMethod returns a copy of e that names the failing method, unless e names
// one already.
func (e *Error) ForMethod(class, method uint16) *Error {
	if e.Class != 0 {
		return e
	}
	c := *e
	c.Class, c.Method = class, method
	return &c
}

// AsConnection returns e with connection scope: an error on channel 0, and one
// met during the handshake, ends the connection whatever its code.
func (e *Error) AsConnection() *Error {
	if e.Scope == Connection {
		return e
	}
	c := *e
	c.Scope = Connection
	return &c
}

// maxText is the size of a short string, in which a reply text travels.
const maxText = 255

// newError builds an Error of the code's own scope. A text too long for a short
// string is cut at a character and marked with dots.
func newError(code uint16, format string, args ...any) *Error {
	text := CodeName(code) + " - " + fmt.Sprintf(format, args...)
	return &Error{Code: code, Text: truncate(text), Scope: scopeOf(code)}
}

// ErrNoQueue is what errors.Is finds in a NoQueue, be it made here or by another node.
var ErrNoQueue = errors.New("no such queue")

// noQueueText is how the text of a NoQueue begins, whatever its name.
const noQueueText = "NOT_FOUND - no queue '"

// Told is an error with which a queue on another node has answered, of which these have come. Of what a queue answers, no other
// text begins as that of NoQueue does.
func Told(scope Scope, code uint16, text string) *Error {
	e := &Error{Code: code, Text: text, Scope: scope}
	if code == NotFound && strings.HasPrefix(text, noQueueText) {
		e.is = ErrNoQueue
	}
	return e
}

func truncate(s string) string {
	if len(s) <= maxText {
		return s
	}
	const dots = "..."
	n := maxText - len(dots)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + dots
}
