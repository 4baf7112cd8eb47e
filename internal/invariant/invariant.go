package invariant

import "fmt"

// Violation is the value an invariant panics with, so that a recover can tell our bugs from runtime errors.
type Violation struct{ Text string }

// Error makes a Violation printable by the runtime's panic output.
func (v Violation) Error() string { return "invariant violated: " + v.Text }

// Failf reports a broken invariant. It never returns.
func Failf(format string, args ...any) {
	panic(Violation{Text: fmt.Sprintf(format, args...)})
}

// That panics with the text if ok is false. The text is constant on purpose: a hot path must not pay for formatting.
func That(ok bool, text string) {
	if !ok {
		panic(Violation{Text: text})
	}
}
