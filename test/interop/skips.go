package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// skipFiles are the tests of a suite that are expected to fail, each with the
// reason. A line is a test's name, " # " and the reason.
type skipFiles struct {
	ours map[string]string // not yet possible with our broker: run, and must fail
	any  map[string]string // possible with none: not run
}

func readSkips(dir, suite string, ours bool) (skipFiles, error) {
	var s skipFiles
	var err error
	if s.any, err = readSkipFile(filepath.Join(dir, suite+".any")); err != nil || !ours {
		return s, err
	}
	s.ours, err = readSkipFile(filepath.Join(dir, suite+".txt"))
	return s, err
}

func readSkipFile(path string) (map[string]string, error) {
	skips := map[string]string{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return skips, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, reason, found := strings.Cut(line, " # ")
		if !found || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s: %q has no reason", path, line)
		}
		skips[strings.TrimSpace(name)] = strings.TrimSpace(reason)
	}
	return skips, nil
}
