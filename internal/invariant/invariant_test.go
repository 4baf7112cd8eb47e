package invariant

import "testing"

func TestFailfPanicsWithViolation(t *testing.T) {
	defer func() {
		v, ok := recover().(Violation)
		if !ok || v.Error() != "invariant violated: index 4 after 6" {
			t.Fatalf("recovered %v", v)
		}
	}()
	That(true, "holds")
	Failf("index %d after %d", 4, 6)
}

func TestThatPanicsOnlyWhenBroken(t *testing.T) {
	That(true, "holds")
	defer func() {
		if v, ok := recover().(Violation); !ok || v.Text != "broken" {
			t.Fatalf("recovered %v", v)
		}
	}()
	That(false, "broken")
}
