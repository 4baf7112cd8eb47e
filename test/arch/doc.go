// Package arch tests the source as source: which room may import which, that
// every package says what it is, and that nothing unfinished lies around.
//
// It never runs any code of the broker.
//
// Map of the files: source_test.go reads the tree; imports_test.go holds the
// arrows between rooms; purity_test.go what the pure rooms may not do;
// requirements_test.go that requirements and tests name each other;
// hygiene_test.go the rest.
package arch
