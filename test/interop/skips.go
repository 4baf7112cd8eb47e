package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// readSkips reads the skip files of a suite: name to reason. A line is a test's
// name, " # " and the reason.
func readSkips(dir, suite string, ours bool) (map[string]string, error) {
	skips := map[string]string{}
	files := []string{suite + ".any"}
	if ours {
		files = append(files, suite+".txt")
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
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
				return nil, fmt.Errorf("%s: %q has no reason", file, line)
			}
			skips[strings.TrimSpace(name)] = strings.TrimSpace(reason)
		}
	}
	return skips, nil
}
