//go:build !linux

package blackbox

import "testing"

// smallDisk is Linux's.
func smallDisk(t *testing.T, _ string, _ int) string {
	t.Helper()
	t.Skip("no small disk can be mounted")
	return ""
}
