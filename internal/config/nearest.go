package config

import (
	"fmt"
	"strings"
)

// unknown is the error for a key that neither this broker nor RabbitMQ knows.
func unknown(key string) error {
	if under := below(key); under != "" {
		return fmt.Errorf("unknown key %q; there is %s", key, under)
	}
	if near := nearest(key); near != "" {
		return fmt.Errorf("unknown key %q; did you mean %q?", key, near)
	}
	return fmt.Errorf("unknown key %q", key)
}

// below names the keys that go on where this one ends.
func below(key string) string {
	var keys []string
	for i := range rows {
		if strings.HasPrefix(rows[i].key, key+".") {
			keys = append(keys, rows[i].key)
		}
	}
	return strings.Join(keys, ", ")
}

// nearest gives the known key with the fewest edits, if they are few enough to be a slip. Keys that are used here win
// over keys that would only be understood.
func nearest(key string) string {
	best, edits := "", len(key)/3+1
	consider := func(candidate string) {
		if d := distance(key, candidate); d < edits {
			best, edits = candidate, d
		}
	}
	for i := range rows {
		r := &rows[i]
		if !r.family() {
			consider(r.key)
			continue
		}
		if at := strings.LastIndexByte(key, '.'); at > 0 {
			consider(r.stem() + key[at:])
		}
	}
	for _, k := range known {
		if !strings.HasSuffix(k.key, "*") {
			consider(k.key)
		}
	}
	return best
}

// distance counts the letters to insert, delete or change to make b of a (Levenshtein).
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := before[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, before[j+1]+1, row[j]+1)
		}
		before = row
	}
	return before[len(b)]
}
